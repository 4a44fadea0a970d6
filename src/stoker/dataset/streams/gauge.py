"""Measurement of the calls of one open stream."""

import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from stoker.dataset.streams.durations import Durations
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.threads.runnable import runnable_seconds
from stoker.elements.sizes import element_bytes

# Measuring a call costs about 1 us. A stream that is called more often than every `_FAST_SECONDS`
# is measured for this number of calls and then rests, until the next interval begins; the others
# are measured in each call. So it costs less than 1 %.
WINDOW_CALLS = 8
_FAST_SECONDS = 200e-6

# Streams that rest are measured again at this interval, which takes 10 to 30 us each.
_INTERVAL_SECONDS = 0.1

# Asking for how long a thread was runnable costs 30 us. It is done for one in 8 calls that are as
# long as this.
SLOW_SECONDS = 1e-3


class Frame:
    """The measured call that a thread is in.

    Attributes:
        inner: seconds in the measured calls that it made.
        is_consumer: the thread reads the root of the pipeline.
    """

    __slots__ = ("inner", "is_consumer")

    def __init__(self) -> None:
        self.inner = 0.0
        self.is_consumer = False


class _Frames(threading.local):
    """One `Frame` per thread."""

    def __init__(self) -> None:
        self.own = Frame()


class Clock:
    """Time of one pipeline, and the gauges that rest.

    Attributes:
        frames: of the threads that read streams of the pipeline.
        now: the end of the consumer's last measured read.
        next_interval: the time at which gauges that rest are to measure again.
        stopped: the time at which the consumer stopped reading; None while it reads.
        idle: seconds that the consumer spent between its reads, where they were measured.
        resting: gauges that measure nothing at the moment.
        has_consumer: a `Consumer` measures the reads of the root, and begins the intervals in which
            these gauges measure. Otherwise the gauge of the root does so, and never rests.
    """

    def __init__(self) -> None:
        self.frames = _Frames()
        self.now = time.perf_counter()
        self.next_interval = 0.0
        self.stopped: float | None = None
        self.idle = 0.0
        self.resting: list[Gauge] = []
        self.has_consumer = False

    def begin_interval(self, now: float) -> bool:
        """Measure the streams that rest, and return True if there are any.

        Called by the thread that reads the root, when `next_interval` has come.
        """
        self.frames.own.is_consumer = True
        self.next_interval = now + _INTERVAL_SECONDS
        resting, self.resting = self.resting, []
        for gauge in resting:
            gauge.measure(now)
        return bool(resting)

    def moment(self, now: float) -> "Moment":
        """Return the moment `now`."""
        return Moment(now, self.idle)


class Moment(NamedTuple):
    """A time, and the seconds for which the consumer had been idle until then."""

    now: float
    idle: float

    def until(self, later: "Moment", *, of_consumer: bool) -> float:
        """Return the seconds until a later moment, without those in which a thread was idle."""
        idle = later.idle - self.idle if of_consumer else 0.0
        return max(0.0, later.now - self.now - idle)


class Totals:
    """Sums over measured calls.

    Attributes:
        elements: elements yielded.
        sized: elements of which the size was asked.
        sized_bytes: about the bytes of these.
        seconds: in the calls.
        judged: the part of `seconds` for which `on_core` was measured.
        on_core: the part of `judged` in which the thread had a core, or waited for one.
        own: the part of `seconds` that was not in measured calls of other streams.
        durations: of `own` per element.
        filled: sum of the fractions of the buffer in use.
        looks: the number of these.
        sampled: some calls were not measured: the sums are estimates.
    """

    __slots__ = (
        "durations",
        "elements",
        "filled",
        "judged",
        "looks",
        "on_core",
        "own",
        "sampled",
        "seconds",
        "sized",
        "sized_bytes",
    )

    def __init__(self) -> None:
        self.elements = 0.0
        self.sized = 0
        self.sized_bytes = 0
        self.seconds = 0.0
        self.own = 0.0
        self.judged = 0.0
        self.on_core = 0.0
        self.durations = Durations()
        self.filled = 0.0
        self.looks = 0
        self.sampled = False

    def ask_size(self, chunk: list[Any]) -> None:
        """Ask the size of the first of some elements."""
        if type(chunk) is list:  # not row numbers
            self.sized += 1
            self.sized_bytes += element_bytes(chunk[0])

    def add(self, other: "Totals", factor: float = 1.0) -> None:
        """Add sums, of which the calls count `factor` times."""
        self.elements += factor * other.elements
        self.sized += other.sized
        self.sized_bytes += other.sized_bytes
        self.seconds += factor * other.seconds
        self.own += factor * other.own
        self.judged += other.judged
        self.on_core += other.on_core
        self.durations.merge(other.durations)
        self.filled += other.filled
        self.looks += other.looks
        self.sampled |= other.sampled


class Gauge:
    """Measures the calls of one stream.

    While it measures, the stream has an attribute `next_chunk` that hides the method of its class;
    while it rests, a call costs nothing more than without a gauge. A wrapper around the stream
    would cost 70 ns a call then, where a lazily read map takes 600 ns per element. (`vars` of a
    stream and another `__class__` would make all its attributes slower.) What is not measured is
    estimated from the next interval that is. `close` is hidden, too, and ends this, so that a
    closed stream is not part of a reference cycle.

    Args:
        stream: the stream that is measured; it is not kept alive.
        reference: refers to it.
        clock: of the pipeline.
        weight: the number of streams for which it is measured.

    Attributes:
        next_chunk: the method of the stream's class.
    """

    __slots__ = (
        "_began",
        "_clock",
        "_closed",
        "_done",
        "_ended",
        "_is_root",
        "_last",
        "_left",
        "_of_consumer",
        "_rested",
        "_reviewed",
        "_slow",
        "_stream",
        "_weight",
        "_window",
        "_work",
        "next_chunk",
    )

    def __init__(
        self, stream: Stream, reference: "weakref.ref[Stream]", clock: Clock, weight: int
    ) -> None:
        self._stream = reference
        self._closed = False
        self.next_chunk = type(stream).next_chunk
        self._work = stream.work
        self._clock = clock
        self._weight = weight
        self._done: Totals | None = None
        """Sums of the intervals before; many streams never rest."""
        self._window = Totals()
        self._is_root = False
        self._last = 0.0
        self._left = WINDOW_CALLS
        self._reviewed = time.perf_counter()
        self._began = clock.moment(self._reviewed)
        self._ended: Moment | None = None
        """The end of the last interval, while it rests."""
        self._rested = 0.0
        """Seconds between the last two intervals."""
        self._of_consumer = False
        self._slow = False
        stream.gauge = self
        # These keep the stream alive while one of them is called.
        stream.close = partial(self.close, stream)  # type: ignore[method-assign]
        stream.next_chunk = partial(self.read, stream)  # type: ignore[method-assign]

    def become_root(self) -> None:
        """Begin the intervals in which others measure, unless a `Consumer` does."""
        self._is_root = True

    def measure(self, now: float) -> None:
        """Begin an interval in which calls are measured, if the stream is still open."""
        stream, ended = self._stream(), self._ended
        if stream is None or ended is None or self._closed:
            return
        if self._done is None:
            self._done = Totals()
        self._done.add(self._window, self._factor(ended))
        self._done.sampled = True
        self._window = Totals()
        self._ended = None
        self._left, self._reviewed = WINDOW_CALLS, now
        self._began = self._clock.moment(now)
        self._rested = ended.until(self._began, of_consumer=self._of_consumer)
        stream.next_chunk = partial(self.read, stream)  # type: ignore[method-assign]

    def add_to(self, totals: Totals, work: Work, now: float) -> None:
        """Add the sums until `now`, with estimates of what was not measured."""
        weight = self._weight
        if self._done is not None:
            totals.add(self._done, weight)
        factor = self._factor(self._clock.moment(now))
        totals.add(self._window, weight * factor)
        totals.sampled |= weight > 1 or self._ended is not None
        if self._work is not None:
            work.add(self._work, weight)

    def close(self, stream: Stream) -> None:
        """Measure no more, and close the stream."""
        self._closed = True
        for name in ("next_chunk", "close"):
            with suppress(AttributeError):  # it rests, or two threads close it
                delattr(stream, name)
        stream.close()

    def read(
        self, stream: Stream, max_elements: int, max_bytes: int, lazy: bool = False
    ) -> list[Any]:
        """Read the stream and measure the call."""
        window, frame, slow = self._window, self._clock.frames.own, self._slow
        if self._work is not None and (filled := stream.filled()) is not None:
            window.filled += filled
            window.looks += 1
        on_core = runnable_seconds() if slow else 0.0
        outer, frame.inner = frame.inner, 0.0
        count = 0
        start = time.perf_counter()
        if self._is_root and self._last and not self._clock.has_consumer:
            self._clock.idle += start - self._last
        try:
            chunk = self.next_chunk(stream, max_elements, max_bytes, lazy)
            count = len(chunk)
            return chunk
        finally:
            self._last = end = time.perf_counter()
            seconds = end - start
            own = seconds - frame.inner
            frame.inner = outer + seconds
            window.seconds += seconds
            window.own += own
            if slow:
                window.judged += seconds
                window.on_core += runnable_seconds() - on_core
            self._slow = own > SLOW_SECONDS and own > 0.9 * seconds and self._left == 2
            if count:
                window.elements += count
                window.durations.add(own / count, count)
                if slow or not window.sized:
                    window.ask_size(chunk)
            self._left -= 1
            if not self._left:
                self._review(end)

    def _review(self, now: float) -> None:
        """Rest if the last calls followed each other fast."""
        fast = now - self._reviewed < WINDOW_CALLS * _FAST_SECONDS
        self._left, self._reviewed = WINDOW_CALLS, now
        clock = self._clock
        if self._is_root and not clock.has_consumer:
            clock.now = now
            if now >= clock.next_interval:
                clock.begin_interval(now)
            return
        stream = self._stream()
        if fast and stream is not None and not self._closed:
            self._of_consumer = clock.frames.own.is_consumer
            self._ended = clock.moment(now)
            with suppress(AttributeError):  # another thread closed it
                del stream.next_chunk
            clock.resting.append(self)

    def _factor(self, until: Moment) -> float:
        """Return how many calls there were for each that the last interval measured."""
        ended = self._ended or until
        length = self._began.until(ended, of_consumer=self._of_consumer)
        rested = self._rested + ended.until(until, of_consumer=self._of_consumer)
        return 1.0 + rested / length if rested and length else 1.0
