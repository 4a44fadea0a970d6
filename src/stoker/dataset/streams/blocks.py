"""A stream that calls a function for each element of its input, in the thread that reads."""

from abc import abstractmethod
from collections.abc import Iterator
from operator import length_hint
from typing import Any, ClassVar

from stoker.dataset.random import Calls
from stoker.dataset.streams.calls.task_calls import StreamCalls
from stoker.dataset.streams.failures import Origin, StreamOrigin, mark_failure
from stoker.dataset.streams.stream import (
    READ_AHEAD_BYTES,
    READ_AHEAD_ELEMENTS,
    OneInputStream,
    Stream,
)
from stoker.errors import PoisonedElementError


class BlockStream(OneInputStream):
    """Reads its input in blocks and yields what `_compute` makes of their elements.

    `_block` holds the elements read and not used; `_failure` an error after elements already
    computed. Skipping computes too, because only that shows what follows.

    Args:
        stream: the input.
        origin: kind and site of the node, for errors of its function.
        keyed: keys the randomness of its function.
    """

    _calls_user_code: ClassVar[bool] = True

    def __init__(self, stream: Stream, origin: StreamOrigin, keyed: Calls) -> None:
        super().__init__(stream)
        self._origin = origin
        self._keyed = keyed
        self._recorded = keyed.recorded()
        self._block: Iterator[Any] = iter(())
        self._elements: list[Any] = []
        self._types: set[type] | None = None
        self._stop = 0
        """Number of input positions read."""
        self._failure: Exception | None = None
        self._ended = False

    @property
    def _index(self) -> int:
        """Number of input positions used."""
        return self._stop - length_hint(self._block)

    @abstractmethod
    def _compute(self, chunk: list[Any], max_elements: int, max_bytes: int) -> None:
        """Add what the elements of `_block` yield to `chunk`, until enough or a failure.

        Functions are called within ``with self._keyed``.
        """

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy and self._calls_user_code:
            max_elements = 1
        chunk: list[Any] = []
        while not chunk:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._ended:
                break
            if not length_hint(self._block) and not self._read(max_elements, max_bytes, lazy):
                break
            if self._recorded is None:
                self._compute(chunk, max_elements, max_bytes)
            else:
                self._compute_recorded(self._recorded, chunk, max_elements, max_bytes)
        return chunk

    def _compute_recorded(
        self, recorded: StreamCalls, chunk: list[Any], max_elements: int, max_bytes: int
    ) -> None:
        # One record for the whole block: recording each call would cost too much.
        left = length_hint(self._block)
        try:
            slot = recorded.begin(self._stop - left, self._stop, self._elements[-left])
        except PoisonedElementError as error:
            next(self._block)  # its only element: see `_read`
            self._fail(error)
            return
        try:
            self._compute(chunk, max_elements, max_bytes)
        finally:
            recorded.end(slot)

    def close(self) -> None:
        self._end()
        self._input.close()

    def _end(self) -> None:
        self._ended = True
        self._block = iter(())
        self._failure = None

    def _read(self, max_elements: int, max_bytes: int, lazy: bool) -> list[Any]:
        """Read the next block; ``[]`` at the input's end."""
        if max_elements == 1:
            max_elements, max_bytes, lazy = READ_AHEAD_ELEMENTS, READ_AHEAD_BYTES, True
        if self._recorded is not None:
            max_elements = min(max_elements, self._recorded.limit(self._stop))
        try:
            elements = self._input.next_chunk(max_elements, max_bytes, lazy)
        except Exception:
            self._stop += 1
            raise
        self._elements, self._types = elements, None
        self._block = iter(elements)
        self._stop += len(elements)
        self._keyed.over(self._block, self._stop)
        self._ended = not elements
        return elements

    def _block_types(self) -> set[type]:
        """Return the types of the block's elements: only tuples are unpacked into arguments."""
        if self._types is None:
            self._types = set(map(type, self._elements))
        return self._types

    def _fail(self, error: Exception) -> None:
        """Let the error of the element used last be raised after the chunk."""
        self._failure = mark_failure(error, self._origin_of_last())

    def _origin_of_last(self) -> Origin:
        """Return the origin of an error of the element used last."""
        return self._origin.at(self._index - 1, self._elements[-1 - length_hint(self._block)])
