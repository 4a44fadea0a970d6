"""Parallel where it pays: on the pool while the function is slow, inline while it is cheap."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads.parallel import CHEAP_SECONDS, OrderedCalls
from stoker.elements.sizes import element_bytes
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
MEASURE_SECONDS = 10e-3


class HandOver(Exception):  # noqa: N818 - a signal, like StopIteration
    """Raised by an `Inline` in the middle of a unit when its function proves costly."""


class Inline(Protocol):
    """A stream that computes in the calling thread and can hand over to the pool and back."""

    @property
    def seconds(self) -> float:
        """Spent in the function since the last verdict of `costly`."""
        ...

    @property
    def mean_seconds(self) -> float:
        """Of a call, by the last verdict of `costly`; 0 before the first."""
        ...

    def next(self) -> Any: ...
    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]: ...
    def advance(self, n: int) -> int: ...
    def close(self) -> None: ...

    def costly(self) -> bool:
        """Whether its function is too slow to be called inline, as measured; resets the measure."""
        ...

    def keep(self, verdicts: int) -> None:
        """So many verdicts of `costly` are False whatever was measured."""
        ...

    def hand_over(self) -> tuple[list[Any], list[Any], int] | None:
        """What `OrderedCalls.start` takes; None if it cannot be handed over now."""
        ...

    def resume(self, index: int) -> None:
        """Goes on; the stream's next element has the number `index`."""
        ...


class AdaptiveCalls(Stream):
    """A parallel map: `OrderedCalls` while the function is worth a thread, else inline.

    Args:
        inline: computes inline.
        make_calls: makes the parallel one, over the same input.
        probe: begin inline and measure (AUTOTUNE) instead of beginning in parallel.
    """

    def __init__(
        self, inline: Inline, make_calls: Callable[[], OrderedCalls], *, probe: bool
    ) -> None:
        self._inline = inline
        self._make_calls = make_calls
        self._calls: OrderedCalls | None = None
        self._trial = _FIRST_TRIAL
        self._stay = _FIRST_STAY
        self._settling = False
        self._closed = False
        self._switch = threading.RLock()
        if not probe:
            self._go_parallel()

    def next(self) -> Any:
        calls = self._calls
        if calls is not None or self._inline.seconds >= MEASURE_SECONDS:
            calls = self._current()
        if calls is None:
            try:
                return self._inline.next()
            except HandOver:
                self._go_parallel()
            return self.next()
        return calls.take()

    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        calls = self._current()
        if calls is None:
            try:
                return self._inline.next_chunk(max_elements, max_bytes)
            except HandOver:
                self._go_parallel()
            return self.next_chunk(max_elements, max_bytes)
        try:
            first = calls.take()
        except StopIteration:
            return []
        if max_elements == 1:
            return [first]
        rest = calls.take_ready(element_bytes, max_elements - 1, max_bytes - element_bytes(first))
        return [first, *rest]

    def advance(self, n: int) -> int:
        calls = self._current()
        return self._inline.advance(n) if calls is None else calls.advance(n)

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

    def _current(self) -> OrderedCalls | None:
        """How the next element is to be computed; None for inline."""
        if self._calls is None:
            if self._inline.costly():
                self._go_parallel()
            return self._calls
        if not self._settling and self._calls.measured >= self._trial:
            alone = self._inline.mean_seconds
            outpaced = alone > 0 and self._calls.outpaced_by(alone)
            if outpaced:
                self._inline.keep(self._stay)
                self._stay = min(2 * self._stay, _LONGEST_STAY)
            if outpaced or self._calls.mean_seconds() < CHEAP_SECONDS:
                self._calls.settle()
                self._settling = True
            else:
                self._calls.forget_cost()
        if self._settling and self._calls.settled():
            self._go_inline(self._calls)
        return self._calls

    def _go_parallel(self) -> None:
        handed = self._inline.hand_over()
        if handed is None:
            return
        with self._switch:
            if self._closed:
                raise FailedPreconditionError("this iterator was closed while it was read")
            self._calls = self._make_calls()
            self._calls.start(*handed)

    def _go_inline(self, calls: OrderedCalls) -> None:
        with self._switch:
            if self._closed:
                raise FailedPreconditionError("this iterator was closed while it was read")
            self._calls = None
            self._settling = False
            calls.close(close_stream=False)
            self._inline.resume(calls.next_index())
            self._trial = min(self._trial * 2, _LONGEST_TRIAL)
