"""Measurement of the calls of one open stream."""

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from stoker.dataset.streams.calls.section import Section, measured_section
from stoker.dataset.streams.measure.totals import Totals
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.threads.runnable import CoreTime

# Asking for the time on a core costs 60 us. It is done for one in 8 calls that are as
# long as this.
SLOW_SECONDS = 1e-3

# To ask how full a buffer is may take a lock and 14 us: it is done in one in 8 measured calls.
_CALLS_PER_LOOK = 8


class Gauge:
    """Measures the calls of one stream that its `Section` chooses.

    In these the stream has an attribute `next_chunk` that hides the method of its class; otherwise
    a call costs nothing more than without a gauge. A wrapper around the stream would cost 70 ns a
    call then, where a lazily read map takes 600 ns per element. (`vars` of a stream and another
    `__class__` would make all its attributes slower.) `close` is hidden, too, and ends this, so
    that a closed stream is not part of a reference cycle.

    Args:
        stream: the stream that is measured; it is not kept alive.
        weight: the number of streams for which it is measured.
        closed: called once, when the stream was closed.

    Attributes:
        next_chunk: the method of the stream's class.
    """

    __slots__ = (
        "_calls",
        "_closed",
        "_section",
        "_slow",
        "_stream",
        "_totals",
        "_weight",
        "_work",
        "next_chunk",
    )

    def __init__(self, stream: Stream, weight: int, closed: "Callable[[Gauge], None]") -> None:
        self._stream = weakref.ref(stream)
        self._weight = weight
        self._closed: Callable[[Gauge], None] | None = closed
        self.next_chunk = type(stream).next_chunk
        self._work = stream.work
        self._totals = Totals()
        self._section: Section | None = None
        self._calls = 0
        self._slow = False
        stream.gauge = self
        # These keep the stream alive while one of them is called.
        stream.close = partial(self.close, stream)  # type: ignore[method-assign]
        stream.next_chunk = partial(self.read, stream)  # type: ignore[method-assign]

    def show(self) -> None:
        """Hide the method of the stream, if it is still open."""
        stream = self._stream()
        if stream is not None and self._closed is not None:
            stream.next_chunk = partial(self.read, stream)  # type: ignore[method-assign]

    def hide(self) -> None:
        """Let the stream be called directly."""
        stream = self._stream()
        if stream is not None:
            with suppress(AttributeError):  # another thread closed it
                del stream.next_chunk

    @property
    def lost(self) -> bool:
        """True if the stream exists no more, though nobody closed it."""
        return self._stream() is None

    def forget(self) -> None:
        """Drop the sums: the calls until now only skipped elements."""
        self._totals = Totals()

    def add_to(self, totals: Totals, work: Work) -> None:
        """Add the sums until now."""
        totals.add(self._totals, self._weight)
        totals.sampled |= self._section is not None and self._section.weight > 1
        if self._work is not None:
            work.add(self._work, self._weight)

    def close(self, stream: Stream) -> None:
        """Measure no more, and close the stream."""
        closed, self._closed = self._closed, None
        for name in ("next_chunk", "close"):
            with suppress(AttributeError):  # it is hidden, or two threads close it
                delattr(stream, name)
        try:
            stream.close()
        finally:
            if self._section is not None:
                self._section.remove(self)
            if closed is not None:
                closed(self)

    def read(
        self, stream: Stream, max_elements: int, max_bytes: int, lazy: bool = False
    ) -> list[Any]:
        """Read the stream, and measure the call if it is part of a measured one."""
        section = measured_section()
        if section is None:
            return self.next_chunk(stream, max_elements, max_bytes, lazy)
        if self._section is not section:
            self._join(section)
        totals, slow = self._totals, self._slow
        self._calls += 1
        look = self._calls % _CALLS_PER_LOOK == 1
        if look and self._work is not None and (filled := stream.filled()) is not None:
            totals.occupancy += filled
            totals.occupancy_samples += 1
        core = CoreTime() if slow else None
        section.calls += 1
        outer, section.inner = section.inner, 0.0
        count = 0
        start = time.perf_counter()
        try:
            chunk = self.next_chunk(stream, max_elements, max_bytes, lazy)
            count = len(chunk)
            return chunk
        finally:
            seconds = time.perf_counter() - start
            own = seconds - section.inner
            section.inner = outer + seconds
            totals.seconds += section.weight * seconds
            if core is not None:
                on_core, queued = core.elapsed()
                totals.judged += max(on_core, seconds - queued)
                totals.on_core += on_core
            self._slow = look and own > SLOW_SECONDS and own > 0.9 * seconds
            totals.sampled = totals.sampled or section.weight > 1
            if count:
                totals.elements += section.weight * count
                totals.durations.add(own / count, section.weight * count)
                if slow or not totals.sized:
                    totals.ask_size(chunk)

    def _join(self, section: Section) -> None:
        """Become part of the section of the thread that reads the stream."""
        if self._section is not None:
            self._section.remove(self)
        self._section = section
        if self._closed is not None:
            section.add(self)
