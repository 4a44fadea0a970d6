"""Signs of life of child processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from stoker.service.worker.processes.activity import ChildActivity, process_state, runnable_seconds
from tests.serving import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class _Child:
    """A process with a counter, a state, and threads, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.counter = 0
        self.state: str | None = "S"
        self.threads = {1: 0.0, 2: 0.0}
        self.activity = ChildActivity(
            1,
            lambda: self.counter,
            lambda _: self.state,
            lambda _: dict(self.threads),
            lambda: self.now,
        )

    def active_for(self, seconds: int, *, moves: bool = False, runnable: float = 0.0) -> list[bool]:
        """Return whether it was active in the last 10 s, at each of `seconds`.

        Args:
            seconds: for which time passes.
            moves: the counter moves.
            runnable: part of the time for which thread 2 runs or waits for a processor.
        """
        found = []
        for _ in range(seconds):
            self.now += 1
            self.counter += moves
            self.threads[2] += runnable
            found.append(self.activity.within(10))
        return found


def test_moving_counter_shows_activity():
    assert all(_Child().active_for(60, moves=True))


@pytest.mark.parametrize("runnable", [1.0, 0.3])
def test_computing_thread_shows_activity_while_the_counter_stands(runnable: float):
    child = _Child()
    child.active_for(5, moves=True)
    assert all(child.active_for(60, runnable=runnable))


@pytest.mark.parametrize("runnable", [0.0, 0.2])
def test_blocked_process_is_inactive_after_the_time(runnable: float):
    """Threads that wait for the GIL of the blocked one are runnable for a part of the time."""
    child = _Child()
    child.active_for(5, moves=True)
    assert child.active_for(12, runnable=runnable) == [True] * 10 + [False] * 2
    assert child.active_for(1, moves=True) == [True]


@pytest.mark.parametrize("state", ["T", "t", "Z", None])
def test_stopped_or_dead_process_is_inactive_immediately(state: str | None):
    child = _Child()
    assert child.active_for(1, moves=True) == [True]
    child.state = state
    assert child.active_for(1, moves=True) == [False]


def test_state_of_a_process_follows_its_stops():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command) as process:
        assert eventually(lambda: process_state(process.pid) == "S")
        os.kill(process.pid, signal.SIGSTOP)
        assert eventually(lambda: process_state(process.pid) == "T")
        process.kill()
        assert eventually(lambda: process_state(process.pid) == "Z")
    assert process_state(process.pid) is None
    assert runnable_seconds(process.pid) == {}


def test_runnable_time_grows_while_a_thread_computes():
    before, began = runnable_seconds(os.getpid())[os.getpid()], time.monotonic()
    sum(range(10**7))
    elapsed = time.monotonic() - began
    after = runnable_seconds(os.getpid())[os.getpid()]
    assert elapsed / 2 < after - before < 2 * elapsed
