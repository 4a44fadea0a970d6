"""Parallel where it pays: on the pool while the function is expensive, inline while it is cheap."""

import threading
import time
from collections.abc import Callable
from typing import Any

from stoker.dataset.streams.stream import PushbackStream, Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.threads.inline import InlineCalls
from stoker.dataset.threads.parallel import OrderedCalls
from stoker.errors import FailedPreconditionError

# A call on the pool costs 20 us of CPU more than one inline (16 threads, function of 1 ms). A
# function goes inline below about twice that, and leaves at about four times that.
_CHEAP_SECONDS = 50e-6
_EXPENSIVE_SECONDS = 2 * _CHEAP_SECONDS

# A function called inline is judged after this long in it: two time slices of the scheduler, so
# that one interruption by another process decides nothing.
_MEASURE_SECONDS = 10e-3

# The pool is compared with inline calls each time the consumer has spent this long in reading from
# it. It lost if the consumer got an element later than an inline call would have taken: as where
# calls of 20 us, 1 in 20 of them 1 ms, do 13,400/s inline and 8,800 on two threads. Then a function
# called inline is judged after twice as long, up to the second number.
_COMPARE_SECONDS = 100e-3
_LONGEST_MEASURE_SECONDS = 1.0

# Calls on the pool after which a function may go inline: 32 take about 1 ms. Each time it proves
# expensive again the number doubles, so that a function that is slow for one element in a hundred
# stays parallel; 4,096 cheap calls on the pool take 80 ms.
_FIRST_TRIAL = 32
_LONGEST_TRIAL = 4096


class AdaptiveCalls(Stream):
    """A parallel map: `OrderedCalls` while the function is expensive, else `InlineCalls`.

    Args:
        stream: the input.
        make_inline: makes the inline one over the input, which adds its times to a `Work`.
        make_parallel: makes the parallel one over the input, likewise.
        begin_inline: begin inline and measure (AUTOTUNE) instead of beginning in parallel.
    """

    def __init__(
        self,
        stream: Stream,
        make_inline: Callable[[Stream, Work], InlineCalls],
        make_parallel: Callable[[Stream, Work], OrderedCalls],
        *,
        begin_inline: bool,
    ) -> None:
        self._input = PushbackStream(stream)
        self.work: Work = Work()
        self._inline = make_inline(self._input, self.work)
        self._make_parallel = make_parallel
        self._parallel: OrderedCalls | None = None
        self._busy_before, self._calls_before = 0.0, 0
        """`work` when the function was last judged, or began to run here or there."""
        self._inline_mean = 0.0
        self._measure_seconds = _MEASURE_SECONDS
        self._reading_seconds = 0.0
        self._read = 0
        self._trial = _FIRST_TRIAL
        self._closed = False
        self._switch = threading.RLock()
        if not begin_inline:
            self._go_parallel()

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        parallel = self._choose()
        if parallel is not None:
            start = time.perf_counter()
            chunk = parallel.next_chunk(max_elements, max_bytes, lazy)
            self._reading_seconds += time.perf_counter() - start
            self._read += len(chunk)
            if chunk or not parallel.drained():
                return chunk
            self._go_inline(parallel)
        return self._inline.next_chunk(max_elements, max_bytes, lazy)

    def advance(self, n: int) -> int:
        parallel = self._choose()
        skipped = 0
        if parallel is not None:
            skipped = parallel.advance(n)
            if skipped == n or not parallel.drained():
                return skipped
            self._go_inline(parallel)
        return skipped + self._inline.advance(n - skipped)

    def filled(self) -> float | None:
        parallel = self._parallel
        return None if parallel is None else parallel.filled()

    def close(self) -> None:
        with self._switch:
            self._closed = True
        (self._parallel or self._inline).close()

    def _choose(self) -> OrderedCalls | None:
        """Return the stream that computes the next element; None for inline."""
        parallel = self._parallel
        if parallel is None:
            mean = self._mean_seconds(least_seconds=self._measure_seconds)
            if mean is not None and mean > _EXPENSIVE_SECONDS:
                self._inline_mean = mean
                self._go_parallel()
        else:
            mean = self._mean_seconds(least_calls=self._trial)
            if (mean is not None and mean < _CHEAP_SECONDS) or self._inline_is_faster():
                parallel.drain()
        return self._parallel

    def _mean_seconds(self, least_seconds: float = 0.0, least_calls: int = 1) -> float | None:
        """Return the mean duration of a call, and measure anew; None before enough of them."""
        # Without the lock of the calls: one call more or less does not change the judgement.
        busy, calls = self.work.busy - self._busy_before, self.work.calls - self._calls_before
        if busy < least_seconds or calls < least_calls:
            return None
        self._measure_anew()
        return busy / calls

    def _measure_anew(self) -> None:
        self._busy_before, self._calls_before = self.work.busy, self.work.calls

    def _inline_is_faster(self) -> bool:
        if self._reading_seconds < _COMPARE_SECONDS:
            return False
        faster = self._reading_seconds > self._inline_mean * self._read > 0
        self._reading_seconds, self._read = 0.0, 0
        if faster:
            self._measure_seconds = min(2 * self._measure_seconds, _LONGEST_MEASURE_SECONDS)
        return faster

    def _go_parallel(self) -> None:
        released = self._inline.release_inputs()
        if released is None:
            return
        index, inputs = released
        self._input.push_back(inputs)
        with self._switch:
            self._check_open()
            self._parallel = self._make_parallel(self._input, self.work)
            self._measure_anew()
            self._parallel.start(index)

    def _go_inline(self, parallel: OrderedCalls) -> None:
        with self._switch:
            self._check_open()
            self._parallel = None
            parallel.close(close_stream=False)
            self.work.threads = 0
            self._inline.resume(parallel.index)
            self._measure_anew()
            self._trial = min(self._trial * 2, _LONGEST_TRIAL)

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError("this iterator was closed while it was read")
