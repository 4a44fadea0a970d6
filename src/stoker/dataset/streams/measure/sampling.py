"""Measurement of a sample of the calls of the streams that one thread reads."""

import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.threads.runnable import CoreTime
from stoker.elements.sizes import element_bytes

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
os.register_at_fork(after_in_child=_random.seed)

# Asking for the time on a core costs 60 us. It is done for one in 8 calls that are as
# long as this.
SLOW_SECONDS = 1e-3

# To ask how full a buffer is may take a lock and 14 us: it is done in one in 8 measured calls.
_CALLS_PER_LOOK = 8


Chunk_co = TypeVar("Chunk_co", covariant=True)


class ChunkStream(Protocol[Chunk_co]):
    """A stream that a section reads: a `Stream`, or one that yields positions with elements."""

    def next_chunk(self, max_elements: int, max_bytes: int) -> Chunk_co:
        """Return the next elements."""


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
        members: the gauges of the streams.
    """

    def __init__(self) -> None:
        self.weight = 1
        self.calls = 0
        self.inner = 0.0
        self._skips = 0
        self.members: dict[Gauge, None] = {}
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

    def read(self, stream: ChunkStream[Chunk_co], max_elements: int, max_bytes: int) -> Chunk_co:
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
        if self.weight > 1:  # `leave` has hidden them
            for gauge in list(self.members):
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
            for gauge in list(self.members):
                gauge.hide()
        return self.weight

    def _period(self) -> int:
        if self._samples < _FIRST_SAMPLES or self._seconds <= 0:
            return 1
        seconds = _SECONDS_PER_SAMPLE + _SECONDS_PER_CALL * self._measured / self._samples
        ideal = seconds / _COST * self._counted / self._seconds
        # Random, because a pipeline may have a rhythm, such as one slow call in each batch.
        return max(1, int(ideal * (0.5 + _random.random())))


class _Threads(threading.local):
    """The section of which a call is measured, for each thread; None without one."""

    section: Section | None = None


_threads = _Threads()


@dataclass(slots=True)
class Totals:
    """Sums over the calls of a stream; a measured call counts for others that were not.

    Attributes:
        elements: elements yielded.
        sized: elements of which the size was asked.
        sized_bytes: about the bytes of these.
        calls: seconds in the calls, and on a core; its durations are per element, without those in
            calls of other streams.
        own: measured by the streams themselves: their function or threads; None if none does.
        occupancy: sum of samples of the fraction of the buffer in use.
        occupancy_samples: the number of these.
        estimated: some calls were not measured.
    """

    elements: int = 0
    sized: int = 0
    sized_bytes: int = 0
    calls: Work = field(default_factory=Work)
    own: Work | None = None
    occupancy: float = 0.0
    occupancy_samples: int = 0
    estimated: bool = False

    def add(self, other: "Totals", weight: int = 1) -> None:
        """Add the sums of a stream, which counts for `weight` streams."""
        self.elements += weight * other.elements
        self.sized += other.sized
        self.sized_bytes += other.sized_bytes
        self.calls.add(other.calls, weight)
        if other.own is not None:
            self.own = self.own or Work()
            self.own.add(other.own, weight)
        self.occupancy += other.occupancy
        self.occupancy_samples += other.occupancy_samples
        self.estimated |= other.estimated or weight > 1


class Gauge:
    """Measures the calls of one stream that its `Section` chooses.

    In these the stream has an attribute `next_chunk` that hides the method of its class; otherwise
    a call costs nothing more than without a gauge. A wrapper around the stream would cost 70 ns a
    call then, where a lazily read map takes 600 ns per element. (`vars` of a stream and another
    `__class__` would make all its attributes slower.) A gauge does not keep its stream alive, so
    that a closed stream is not part of a reference cycle.

    Args:
        stream: the stream that is measured.
        weight: the number of streams for which it is measured.
        ended: called once, when the stream exists no more; any thread may collect it.

    Attributes:
        totals: the sums until now.
    """

    def __init__(self, stream: Stream, weight: int, ended: "Callable[[Gauge], None]") -> None:
        self.totals = Totals(own=stream.work)
        self._weight = weight
        self._ended = ended
        self._section: Section | None = None
        self._calls = 0
        self._slow = False
        self._stream = weakref.ref(stream, self._collected)
        stream.gauge = self
        self.show()

    def show(self) -> None:
        """Hide the method of the stream."""
        if (stream := self._stream()) is not None:
            # A wrapper around each stream costs 70 ns per call when nothing is measured, a tenth of
            # a lazily read map; an attribute that hides the method costs nothing.
            # (docs/decisions/086)
            stream.next_chunk = self.read  # type: ignore[method-assign]

    def hide(self) -> None:
        """Let the stream be called directly."""
        if (stream := self._stream()) is not None:
            with suppress(AttributeError):  # another thread has hidden it
                del stream.next_chunk

    def forget(self) -> None:
        """Drop the sums of calls until now."""
        self.totals = Totals(own=self.totals.own)

    def add_to(self, totals: Totals) -> None:
        """Add the sums until now."""
        totals.add(self.totals, self._weight)
        if self._section is not None and self._section.weight > 1:
            totals.estimated = True

    def read(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        """Read the stream, and measure the call if it is part of a measured one."""
        stream, section = self._stream(), _threads.section
        assert stream is not None  # its caller refers to it
        next_chunk = type(stream).next_chunk
        if section is None:
            return next_chunk(stream, max_elements, max_bytes, lazy)
        if self._section is not section:
            self._join(section)
        totals, slow = self.totals, self._slow
        self._calls += 1
        look = self._calls % _CALLS_PER_LOOK == 1
        if look and totals.own is not None and (filled := stream.filled()) is not None:
            totals.occupancy += filled
            totals.occupancy_samples += 1
        core = CoreTime() if slow else None
        section.calls += 1
        outer, section.inner = section.inner, 0.0
        count = 0
        start = time.perf_counter()
        try:
            chunk = next_chunk(stream, max_elements, max_bytes, lazy)
            count = len(chunk)
            return chunk
        finally:
            seconds = time.perf_counter() - start
            own, weight = seconds - section.inner, section.weight
            section.inner = outer + seconds
            totals.calls.busy += weight * seconds
            totals.calls.add_core(seconds, None if core is None else core.elapsed())
            totals.estimated |= weight > 1
            # The own time only: a stage that waits for its input has nothing to measure on a core.
            self._slow = look and own > SLOW_SECONDS and own > 0.9 * seconds
            if count:
                totals.elements += weight * count
                totals.calls.durations.add(own / count, weight * count)
                if (slow or not totals.sized) and type(chunk) is list:  # not row numbers
                    totals.sized += 1
                    totals.sized_bytes += element_bytes(chunk[0])

    def _join(self, section: Section) -> None:
        """Become part of the section of the thread that reads the stream."""
        if self._section is not None:
            self._section.members.pop(self, None)
        self._section = section
        section.members[self] = None

    def _collected(self, _: object) -> None:
        if self._section is not None:
            self._section.members.pop(self, None)
        self._ended(self)
