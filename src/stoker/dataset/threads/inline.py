"""Calls of a user's function in the thread that reads, a block of elements per call into C."""

import time
from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import Any

from stoker.dataset.random import Calls
from stoker.dataset.streams.failures import Origin, mark_failure
from stoker.dataset.streams.stream import READ_AHEAD_BYTES, READ_AHEAD_ELEMENTS, Stream
from stoker.dataset.unpacking import apply
from stoker.elements.sizes import element_bytes

# A chunk ends when computing it has taken this long.
_CHUNK_SECONDS = 0.5e-3

# Calls between two looks at the clock: few enough that a function that turns slow is noticed.
_LARGEST_BLOCK = 64


class InlineCalls(Stream):
    """Applies `function` to the elements of `stream` in the calling thread.

    The size of a chunk follows the duration of the calls before, so a call that suddenly blocks
    delays the elements before it in its chunk. `OrderedCalls` delays none.

    Args:
        stream: the inputs.
        function: the user's.
        origin: kind and site of the map node, for its errors.
        keyed: keys the randomness of the calls.

    Attributes:
        seconds: spent in the function since `mean_seconds` last returned a number.
    """

    def __init__(
        self, stream: Stream, function: Callable[..., Any], origin: Origin, keyed: Calls
    ) -> None:
        self._stream = stream
        self._function = function
        self._origin = origin
        self._keyed = keyed
        self._index = 0
        self._inputs: list[Any] = []
        self._at = 0
        self._error: BaseException | None = None
        self._block = 1
        self._result_bytes = 1 << 20
        self.seconds = 0.0
        self._calls = 0

    def next(self) -> Any:
        if self._error is None and self._at < len(self._inputs):
            return self._compute_one()  # a sixth faster than by a chunk of one
        return super().next()

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        self._raise_pending_error()
        if self._at == len(self._inputs) and not self._read(max_elements, max_bytes, lazy):
            return []
        if lazy or max_elements == 1:
            return [self._compute_one()]
        results: list[Any] = []
        start = time.perf_counter()
        deadline = start + _CHUNK_SECONDS
        while self._at < len(self._inputs) and len(results) < max_elements:
            fitting = max(1, max_bytes // self._result_bytes)
            size = min(self._block, max_elements - len(results), fitting)
            block = self._inputs[self._at : self._at + size]
            before = len(results)
            self._compute(block, results)
            now = time.perf_counter()
            self.seconds += now - start
            self._block = _next_block(self._block, now - start)
            start = now
            if self._error is not None:
                break
            self._result_bytes = element_bytes(results[-1])
            max_bytes -= (len(results) - before) * self._result_bytes
            if now > deadline or max_bytes <= 0:
                break
        if not results:
            self._raise_pending_error()
        return results

    def advance(self, n: int) -> int:
        skipped = 0
        if n and self._error is not None:
            self._error = None
            skipped = 1
        buffered = min(n - skipped, len(self._inputs) - self._at)
        self._at += buffered
        rest = n - skipped - buffered
        unread = self._stream.advance(rest) if rest > 0 else 0
        self._index += buffered + unread
        return skipped + buffered + unread

    def close(self) -> None:
        self._stream.close()

    def mean_seconds(self, least: float) -> float | None:
        """Return the mean duration of a call, and measure anew; None before `least` seconds."""
        seconds, calls = self.seconds, self._calls
        if seconds < least:
            return None
        self.seconds, self._calls = 0.0, 0
        return seconds / calls

    def release_inputs(self) -> tuple[list[Any], int] | None:
        """Return the inputs read and not used, and the number of the next element.

        From then on the caller reads the stream, until `resume`. None while an error is pending.
        """
        if self._error is not None:
            return None
        inputs = self._inputs[self._at :]
        self._inputs, self._at = [], 0
        return inputs, self._index

    def resume(self, index: int) -> None:
        """Go on with the element of this number, which the stream yields next."""
        self._index = index
        self.seconds, self._calls = 0.0, 0

    def _read(self, max_elements: int, max_bytes: int, lazy: bool) -> list[Any]:
        """Read the next inputs; ``[]`` at the end."""
        if max_elements == 1:
            max_elements, max_bytes, lazy = READ_AHEAD_ELEMENTS, READ_AHEAD_BYTES, True
        try:
            self._inputs = self._stream.next_chunk(max_elements, max_bytes, lazy)
        except Exception:
            self._index += 1
            raise
        self._at = 0
        return self._inputs

    def _raise_pending_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _compute_one(self) -> Any:
        """Return the next result, in half of the time that `_compute` takes for one."""
        element = self._inputs[self._at]
        self._at += 1
        self._index += 1
        self._calls += 1
        start = time.perf_counter()
        try:
            with self._keyed.over(iter((element,)), self._index) as elements:
                return apply(self._function, next(elements))
        except StopIteration as error:
            raise mark_failure(error, self._origin._replace(index=self._index - 1)) from error
        except Exception as error:
            mark_failure(error, self._origin._replace(index=self._index - 1))
            raise
        finally:
            self.seconds += time.perf_counter() - start

    def _compute(self, block: list[Any], results: list[Any]) -> None:
        """Append the results up to the first failure, which becomes the pending error."""
        function, before = self._function, len(results)
        kinds = set(map(type, block))
        error: Exception | None = None
        try:
            with self._keyed.over(iter(block), self._index + len(block)) as elements:
                if tuple not in kinds:
                    results.extend(map(function, elements))
                elif len(kinds) == 1:
                    results.extend(starmap(function, elements))
                else:
                    results.extend(map(partial(apply, function), elements))
        except Exception as raised:  # noqa: BLE001 - raised at its position
            error = raised
        done = len(results) - before
        if error is None and done < len(block):
            error = StopIteration()  # the function's own: it ended `extend` early
        used = done if error is None else done + 1
        if error is not None:
            self._error = mark_failure(error, self._origin._replace(index=self._index + done))
        self._at += used
        self._index += used
        self._calls += used


def _next_block(block: int, seconds: float) -> int:
    if seconds > _CHUNK_SECONDS:
        return max(1, block // 8)
    return min(block * 2, _LARGEST_BLOCK) if seconds < _CHUNK_SECONDS / 4 else block
