"""Calls of a user function in the reading thread, a block of elements per call into C."""

import time
from collections.abc import Callable
from functools import partial
from itertools import islice, starmap
from operator import length_hint
from typing import Any

from stoker.dataset.random import Calls
from stoker.dataset.streams.blocks import BlockStream
from stoker.dataset.streams.deadline import CHUNK_SECONDS
from stoker.dataset.streams.failures import StreamOrigin, raise_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.unpacking import apply
from stoker.elements.sizes import element_bytes

# Calls between two looks at the clock: few enough that a function that turns slow is noticed.
_LARGEST_BLOCK = 64


class InlineCalls(BlockStream):
    """Applies `function` to the elements of `stream` in the calling thread.

    The size of a chunk follows the duration of the calls before, so a call that suddenly blocks
    delays the elements before it in its chunk. `OrderedCalls` delays none.

    Args:
        stream: the inputs.
        function: the user's.
        origin: kind and site of the map node, for its errors.
        keyed: keys the randomness of the calls.
        work: counts the calls and the time in the function.
    """

    work: Work

    def __init__(
        self,
        stream: Stream,
        function: Callable[..., Any],
        origin: StreamOrigin,
        keyed: Calls,
        work: Work | None = None,
    ) -> None:
        super().__init__(stream, origin, keyed)
        self._function = function
        self._calls_singly = not keyed.seeds_globals  # else each element of a block is seeded
        self._size = 1
        self._result_bytes = 1 << 20  # until a result is known: large ones come singly
        self.work = work or Work()

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if (lazy or max_elements == 1) and self._calls_singly and self._failure is None:
            # A third of the time of a block of one element.
            while not self._ended:
                for element in self._block:
                    return self._call_one(element)
                self._read(1, max_bytes, lazy)
            return []
        return super().next_chunk(max_elements, max_bytes, lazy)

    def advance(self, n: int) -> int:
        skipped = 0
        if n and self._failure is not None:
            self._failure = None
            skipped = 1
        skipped += sum(1 for _ in islice(self._block, n - skipped))
        if skipped < n:
            unread = self._input.advance(n - skipped)
            self._stop += unread
            skipped += unread
        return skipped

    def release_inputs(self) -> tuple[int, list[Any]] | None:
        """Return the number of the next element, and the inputs read and not used.

        From then on the caller reads the stream, until `resume`. None while an error is pending.
        """
        if self._failure is not None:
            return None
        return self._index, list(self._block)

    def resume(self, index: int) -> None:
        """Go on with the element of this number, which the stream yields next."""
        self._stop = index

    def _call_one(self, element: Any) -> list[Any]:
        recorded = self._recorded
        slot = -1
        start = time.perf_counter()
        try:
            if recorded is not None:
                slot = recorded.begin(self._index - 1, self._index, element)
            with self._keyed:
                return [apply(self._function, element)]
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            raise_failure(error, self._origin.at(self._index - 1, element))
        finally:
            if recorded is not None and slot >= 0:
                recorded.end(slot)
            work = self.work
            work.busy += time.perf_counter() - start
            work.calls += 1

    def _compute(self, chunk: list[Any], max_elements: int, max_bytes: int) -> None:
        start = time.perf_counter()
        deadline = start + CHUNK_SECONDS
        while max_bytes > 0 and start < deadline and (left := length_hint(self._block)):
            fitting = max(1, max_bytes // self._result_bytes)
            size = min(self._size, max_elements - len(chunk), fitting, left)
            if not size:
                return
            done = self._call_block(chunk, size)
            now = time.perf_counter()
            self.work.busy += now - start
            self._size = _next_size(self._size, now - start)
            start = now
            if self._failure is not None:
                return
            self._result_bytes = element_bytes(chunk[-1])
            max_bytes -= done * self._result_bytes

    def _call_block(self, chunk: list[Any], size: int) -> int:
        """Add up to `size` results, fewer if a call fails; return how many."""
        function, types, before = self._function, self._block_types(), len(chunk)
        error: Exception | None = None
        try:
            with self._keyed as elements:
                block = islice(elements, size)
                if tuple not in types:
                    chunk.extend(map(function, block))
                elif len(types) == 1:
                    chunk.extend(starmap(function, block))
                else:
                    chunk.extend(map(partial(apply, function), block))
        except Exception as raised:  # noqa: BLE001 - raised at its position
            error = raised
        done = len(chunk) - before
        if error is None and done < size:
            error = StopIteration()  # the function's own, which ended `extend` early
        if error is not None:
            self._fail(error)
        self.work.calls += done + (error is not None)
        return done


def _next_size(size: int, seconds: float) -> int:
    if seconds > CHUNK_SECONDS:
        return max(1, size // 8)
    return min(size * 2, _LARGEST_BLOCK) if seconds < CHUNK_SECONDS / 4 else size
