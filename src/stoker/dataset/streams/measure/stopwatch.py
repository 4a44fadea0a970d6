"""Measure how long threads wait or compute, readable while they do."""

import time
from collections.abc import Callable


class Stopwatch:
    """Seconds summed over the threads that are in some state, such as waiting for room.

    One thread at a time changes the number of threads, or several under one lock; any thread reads
    the seconds. A ``with`` block counts as one thread.

    Args:
        clock: returns the time in seconds, for calls without a time; None: `time.perf_counter`.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.perf_counter
        # One tuple, because other threads read it: the seconds until a time, the number of threads
        # since then, and the time.
        self._state: tuple[float, int, float] = 0.0, 0, 0.0

    def run(self, threads: int, now: float | None = None) -> float:
        """Count for this number of threads from now on; 0 stops.

        Returns:
            The seconds for which the stopwatch ran with another number; 0.0 if it stood still.
        """
        if threads == self._state[1]:
            return 0.0
        now = self._clock() if now is None else now
        lap = self.lap(now)
        self._state = self.seconds(now), threads, now
        return lap

    def lap(self, now: float) -> float:
        """Return the seconds since the number of threads changed; 0.0 while it is 0."""
        _, threads, since = self._state
        return max(0.0, now - since) if threads else 0.0

    def seconds(self, now: float | None = None) -> float:
        """Return the seconds until now, summed over threads."""
        total, threads, since = self._state
        if not threads:
            return total
        return total + threads * max(0.0, (self._clock() if now is None else now) - since)

    def add(self, seconds: float) -> None:
        """Add the seconds of another stopwatch."""
        total, threads, since = self._state
        self._state = total + seconds, threads, since

    def __enter__(self) -> None:
        self.run(1)

    def __exit__(self, *_: object) -> None:
        self.run(0)
