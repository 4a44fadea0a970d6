"""Parallel where it pays: on the pool while the function is slow, inline while it is cheap."""

import threading
from collections.abc import Callable
from typing import Any

from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads.inline import InlineCalls
from stoker.dataset.threads.parallel import CHEAP_SECONDS, OrderedCalls
from stoker.errors import FailedPreconditionError

# How many calls on the pool are measured before a cheap function goes inline: more after every
# time it turned out not to stay cheap, so that a function that is slow now and then stays parallel.
_FIRST_TRIAL = 32
_LONGEST_TRIAL = 4096

# Where threads yielded less than the reading thread alone, they are tried again after so many
# verdicts on the function called inline; after twice as many each further time.
_FIRST_STAY = 16
_LONGEST_STAY = 512

# A verdict on a function called inline needs this much time spent in it: a moment in which another
# process had the core is none.
_MEASURE_SECONDS = 10e-3

# Twice the price of a thread's help: below it a measured function stays inline.
_EXPENSIVE_SECONDS = 2 * CHEAP_SECONDS


class AdaptiveCalls(Stream):
    """A parallel map: `OrderedCalls` while the function is worth a thread, else `InlineCalls`.

    Args:
        inline: computes inline.
        make_calls: makes the parallel one, over the same input.
        probe: begin inline and measure (AUTOTUNE) instead of beginning in parallel.
    """

    def __init__(
        self, inline: InlineCalls, make_calls: Callable[[], OrderedCalls], *, probe: bool
    ) -> None:
        self._inline = inline
        self._make_calls = make_calls
        self._calls: OrderedCalls | None = None
        self._trial = _FIRST_TRIAL
        self._inline_seconds = 0.0
        self._verdicts_to_ignore = 0
        self._stay = _FIRST_STAY
        self._closed = False
        self._switch = threading.RLock()
        if not probe:
            self._go_parallel()

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy:
            max_elements = 1
        calls = self._choose()
        if calls is not None:
            chunk = calls.next_chunk(max_elements, max_bytes)
            if chunk or not calls.drained():
                return chunk
            self._go_inline(calls)
        return self._inline.next_chunk(max_elements, max_bytes)

    def advance(self, n: int) -> int:
        calls = self._choose()
        skipped = 0
        if calls is not None:
            skipped = calls.advance(n)
            if skipped == n or not calls.drained():
                return skipped
            self._go_inline(calls)
        return skipped + self._inline.advance(n - skipped)

    def close(self) -> None:
        with self._switch:
            if self._closed:
                return
            self._closed = True
            calls = self._calls
        if calls is None:
            self._inline.close()
        else:
            calls.close()

    def _choose(self) -> OrderedCalls | None:
        """Return what computes the next element; None for inline."""
        calls = self._calls
        if calls is None:
            if self._is_expensive():
                self._go_parallel()
        elif calls.measured >= self._trial:
            alone = self._inline_seconds
            outpaced = alone > 0 and calls.outpaced_by(alone)
            if outpaced:
                self._verdicts_to_ignore = self._stay + 1
                self._stay = min(2 * self._stay, _LONGEST_STAY)
            if outpaced or calls.mean_seconds() < CHEAP_SECONDS:
                calls.drain()
            else:
                calls.restart_clock()
        return self._calls

    def _is_expensive(self) -> bool:
        """Return True if the function is too slow to be called inline, as measured since."""
        inline = self._inline
        if inline.seconds < _MEASURE_SECONDS:
            return False
        self._inline_seconds = inline.seconds / inline.calls
        inline.restart_clock()
        self._verdicts_to_ignore = max(self._verdicts_to_ignore - 1, 0)
        return not self._verdicts_to_ignore and self._inline_seconds > _EXPENSIVE_SECONDS

    def _go_parallel(self) -> None:
        released = self._inline.release_inputs()
        if released is None:
            return
        with self._switch:
            self._check_open()
            self._calls = self._make_calls()
            self._calls.start(*released)

    def _go_inline(self, calls: OrderedCalls) -> None:
        with self._switch:
            self._check_open()
            self._calls = None
            calls.close(close_stream=False)
            self._inline.resume(calls.next_index())
            self._trial = min(self._trial * 2, _LONGEST_TRIAL)

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError("this iterator was closed while it was read")
