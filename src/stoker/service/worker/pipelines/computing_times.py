"""Times in which the pipeline of a task computes, and in which it lacks splits."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ComputingTimes:
    """Seconds in which a pipeline is read, and the part of them in which it waited for a split.

    Its sources may wait for splits on several threads, while others compute elements of earlier
    splits. A wait counts from the begin of the call of the pipeline in which it ends: before that,
    and in calls that end before the wait does, elements came without the split.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._read = self._lacked = 0.0
        self._call_began: float | None = None
        self._counted_until = 0.0
        """Time in the present call until which waits are part of `_lacked`."""
        self._waiting_since: dict[int, float] = {}
        """The sources that wait, by their threads."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Measure a call of the pipeline, on one thread at a time."""
        with self._lock:
            self._call_began = self._counted_until = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._read += self._clock() - self._call_began
                self._call_began = None

    @contextmanager
    def lacking_split(self) -> Iterator[None]:
        """Measure a wait of a source, on any thread."""
        thread = threading.get_ident()
        with self._lock:
            self._waiting_since[thread] = self._clock()
        try:
            yield
        finally:
            with self._lock:
                since, now = self._waiting_since.pop(thread), self._clock()
                if self._call_began is not None:
                    self._lacked += now - max(since, self._counted_until)
                    self._counted_until = now

    @property
    def seconds(self) -> tuple[float, float]:
        """The seconds of computing, and of waiting for splits; the present call included."""
        with self._lock:
            read, lacked = self._read, self._lacked
            if self._call_began is not None:
                now = self._clock()
                read += now - self._call_began
                if self._waiting_since:
                    since = min(self._waiting_since.values())
                    lacked += now - max(since, self._counted_until)
        return read - lacked, lacked
