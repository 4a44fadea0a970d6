"""Signs of life of a child process, as its parent sees them."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

RUNNABLE_SHARE = 0.25
"""Part of the time for which a thread that computes runs or waits for a processor.

Threads that wait for the GIL wake up every 0.5 ms and use 1 to 4 % of a processor each; 64 of them
wait for one for 20 % of the time (measured on two cores).
"""

_STOPPED = frozenset("TtZX")
"""States in /proc of a process that is stopped, traced or dead."""


def process_state(pid: int) -> str | None:
    """Return the state of a process, such as "S"; ``None`` if it does not exist. Linux only."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name of the program, in parentheses, may contain spaces and parentheses.
    return text[text.rindex(b")") + 2 :][:1].decode()


def runnable_seconds(pid: int) -> dict[int, float]:
    """Return how long each thread of a process has run or waited for a processor. Linux only."""
    found = {}
    with suppress(OSError):  # the process has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # the thread has ended
                running, waiting, _ = (thread / "schedstat").read_text().split()
                found[int(thread.name)] = (int(running) + int(waiting)) / 1e9
    return found


class ChildActivity:
    """Decide whether a child process is active: not stopped, and moving its counter or computing.

    A thread of the child moves the counter, also while functions wait with the GIL released. A
    function that holds the GIL computes. A process that the kernel blocks while it holds the GIL,
    in a page fault or in a read from a network file system, does neither.

    Args:
        pid: of the child.
        progress: returns the child's counter.
        state: returns the state of a process.
        runnable: returns how long each of its threads was runnable, in seconds.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        pid: int,
        progress: Callable[[], int],
        state: Callable[[int], str | None] = process_state,
        runnable: Callable[[int], dict[int, float]] = runnable_seconds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = pid
        self._progress = progress
        self._state = state
        self._runnable = runnable
        self._clock = clock
        self._counter = -1
        self._active_at = self._observed_at = clock()
        self._before: dict[int, float] | None = None

    def within(self, seconds: float) -> bool:
        """Return whether the process is not stopped and was active in the past `seconds`.

        Only calls notice activity, so call it several times in `seconds`. Where there is no /proc,
        as on macOS, every process counts as active.
        """
        if sys.platform != "linux":
            return True
        state = self._state(self._pid)
        if state is None or state in _STOPPED:
            return False
        now = self._clock()
        counter = self._progress()
        if counter != self._counter:
            # Reading /proc of each thread is needed only while the counter stands still.
            self._counter, self._active_at, self._before = counter, now, None
        elif self._before is None:
            self._observe(now)
        elif now - self._observed_at >= seconds / 2:  # shorter times are imprecise
            if self._computed(now):
                self._active_at = now
            self._observe(now)
        return now - self._active_at <= seconds

    def _observe(self, now: float) -> None:
        self._observed_at, self._before = now, self._runnable(self._pid)

    def _computed(self, now: float) -> bool:
        """Return whether a thread has computed since the last observation."""
        before = self._before or {}
        least = RUNNABLE_SHARE * (now - self._observed_at)
        times = self._runnable(self._pid)
        return any(spent - before.get(thread, 0.0) >= least for thread, spent in times.items())
