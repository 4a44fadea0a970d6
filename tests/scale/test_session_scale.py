"""A real dispatcher with thousands of sessions."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from stoker.service.process.open_files import raise_open_files_limit
from tests.scale.raw_sessions import RawSessions
from tests.scale.watched_dispatcher import Measurement

SESSIONS = 5_000
AT_A_TIME = 200
"""Sessions that are opened at a time."""

STEADY_SECONDS = 6.0
LONGEST_DELAY = 1.0
"""Seconds in which the dispatcher must have handled 99 % of the heartbeats; a lease has 10."""


class WatchedDispatcher:
    """A dispatcher in another process.

    Attributes:
        port: its port.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.port = int(self._read())

    def measure(self) -> Measurement:
        """Return its work since the last call."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._read(), type=Measurement)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def watched_dispatcher() -> Iterator[WatchedDispatcher]:
    """Run a dispatcher in another process."""
    command = [sys.executable, "-m", "tests.scale.watched_dispatcher"]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        try:
            yield WatchedDispatcher(process)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(90)
def test_heartbeats_of_5_000_sessions_are_handled_in_time() -> None:
    if raise_open_files_limit() < SESSIONS + 100:
        pytest.skip("the hard limit of open files is low")
    with watched_dispatcher() as dispatcher:
        sessions = RawSessions(("127.0.0.1", dispatcher.port), SESSIONS, AT_A_TIME)
        try:
            sessions.open_all(time.monotonic() + 50)
            assert dispatcher.measure().workers == SESSIONS
            sessions.run(time.monotonic() + STEADY_SECONDS)
            steady = dispatcher.measure()
        finally:
            sessions.close()
    assert (steady.workers, sessions.ended) == (SESSIONS, 0)
    assert len(steady.delays) > SESSIONS
    assert steady.delay(0.99) < LONGEST_DELAY
