"""Sampling of the calls of the streams that one thread reads."""

import random
import threading
import time
from typing import Any, Protocol

from stoker.dataset.streams.stream import Stream

# About the seconds that it takes to measure a call of a section, and each call within it.
_SECONDS_PER_SAMPLE = 6e-6
_SECONDS_PER_CALL = 3e-6

# The part of the time that measuring may take.
_COST = 0.005

# Calls of which each is measured, until it is known how fast they follow each other.
_FIRST_SAMPLES = 7.0

# The rate of the calls is that since about this number of measured ones.
_MEMORY = 32

# Not the random numbers of users, who may have seeded these.
_random = random.Random()


class Sampled(Protocol):
    """The part of a `Gauge` that a section uses."""

    def show(self) -> None: ...
    def hide(self) -> None: ...


class Section:
    """The streams that a thread reads: the one that it calls itself, and those below.

    Streams that another thread reads, as below a prefetch, are another section. One decision holds
    for all streams of a section: a call of the first one is measured with all calls that it makes,
    or none of these is. So the times of its stages are comparable, and a thread that waits or does
    something else costs nothing. A measured call counts for those before it that were not. How many
    these are follows from the rate of the calls; it is random, so that no rhythm of the pipeline
    is missed.

    Attributes:
        weight: the number of calls that the measured one counts for; after it, the next one.
        calls: calls of streams in this measured one so far.
        inner: seconds in calls that the measured call of a stream, which the thread is in, made.
    """

    __slots__ = (
        "_counted",
        "_ended",
        "_hidden",
        "_measured",
        "_members",
        "_outer",
        "_samples",
        "_seconds",
        "_skips",
        "calls",
        "inner",
        "weight",
    )

    def __init__(self) -> None:
        self.weight = 1
        self.calls = 0
        self.inner = 0.0
        self._skips = 0
        self._members: dict[Sampled, None] = {}
        self._hidden = False
        self._outer: Section | None = None
        self._ended: float | None = None
        self._samples = 0.0
        """Recent measured calls; the older, the less they count here and below."""
        self._measured = 0.0
        """Calls of streams in these."""
        self._counted = 0.0
        """Calls, measured or not."""
        self._seconds = 0.0
        """Seconds in and between these."""

    def read(self, stream: Stream, max_elements: int, max_bytes: int) -> list[Any]:
        """Read the first stream, and measure the call if it is one of those chosen."""
        if self._skips:
            self._skips -= 1
            return stream.next_chunk(max_elements, max_bytes)
        self.enter()
        try:
            return stream.next_chunk(max_elements, max_bytes)
        finally:
            self._skips = self.leave() - 1

    def enter(self) -> None:
        """Begin a measured call, for callers that choose it by the result of `leave`."""
        if self._ended is None:
            self._ended = time.perf_counter()
        if self._hidden:
            self._hidden = False
            for gauge in list(self._members):
                gauge.show()
        self.calls, self.inner = 0, 0.0
        self._outer, _threads.section = _threads.section, self

    def leave(self) -> int:
        """End a measured call; return the number of calls of which the last is measured next."""
        _threads.section, self._outer = self._outer, None
        now = time.perf_counter()
        kept = 1 - 1 / _MEMORY
        self._samples = kept * self._samples + 1
        self._measured = kept * self._measured + self.calls
        self._counted = kept * self._counted + self.weight
        self._seconds = kept * self._seconds + now - (self._ended or now)
        self._ended = now
        self.weight = self._period()
        if self.weight > 1:
            self._hidden = True
            for gauge in list(self._members):
                gauge.hide()
        return self.weight

    def add(self, gauge: Sampled) -> None:
        """Add the gauge of a stream that the thread reads."""
        self._members[gauge] = None

    def remove(self, gauge: Sampled) -> None:
        """Remove the gauge of a stream that is closed, or that another thread reads now."""
        self._members.pop(gauge, None)

    def _period(self) -> int:
        if self._samples < _FIRST_SAMPLES or self._seconds <= 0:
            return 1
        seconds = _SECONDS_PER_SAMPLE + _SECONDS_PER_CALL * self._measured / self._samples
        ideal = seconds / _COST * self._counted / self._seconds
        return max(1, int(ideal * (0.5 + _random.random())))


class _Threads(threading.local):
    """The section of which a call is measured, for each thread."""

    section: Section | None = None


_threads = _Threads()


def measured_section() -> Section | None:
    """Return the section of which this thread is in a measured call; None without one."""
    return _threads.section
