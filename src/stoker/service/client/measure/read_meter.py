"""Measure how long a client reads."""

import time
from collections.abc import Callable


class ReadMeter:
    """Times of one client. Its reader updates it, and any thread reads it.

    Args:
        clock: returns the time in seconds.

    Attributes:
        opened_at: when the client was created.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.opened_at = clock()
        self._began: float | None = None
        self._ended_at: float | None = None

    def begin(self, now: float) -> None:
        """Record a read; the first one counts."""
        if self._began is None:
            self._began = now

    def end(self) -> None:
        """Record the end of the iteration, or that the client is closed, whichever is first."""
        if self._ended_at is None:
            self._ended_at = self._clock()

    @property
    def until(self) -> float:
        """The present time, or that of the end."""
        return self._clock() if self._ended_at is None else self._ended_at

    @property
    def seconds(self) -> float:
        """The time since the first read."""
        return 0.0 if self._began is None else self.until - self._began
