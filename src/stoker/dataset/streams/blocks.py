"""A stream that computes its elements from blocks of its input's, in the thread that reads."""

from abc import abstractmethod
from collections.abc import Iterator
from operator import length_hint
from typing import Any, ClassVar

from stoker.dataset.random import Calls
from stoker.dataset.streams.failures import Origin, mark_failure
from stoker.dataset.streams.stream import (
    READ_AHEAD_BYTES,
    READ_AHEAD_ELEMENTS,
    OneInputStream,
    Stream,
)
from stoker.dataset.tree.node import Context, OneInput


class BlockStream(OneInputStream):
    """Yields what `_compute` makes of the input's elements.

    The input's elements wait in `_block`, an error after elements already computed in `_failure`.
    All elements must be computed to know what follows, so skipping computes them too.

    Args:
        context: of the epoch.
        node: whose stream it is; one of the tree the context numbers.
        stream: the input.
    """

    _calls_user_code: ClassVar[bool] = True

    def __init__(self, context: Context, node: OneInput, stream: Stream) -> None:
        super().__init__(stream)
        self._node = node
        self._keyed = Calls(context, node)
        self._block: Iterator[Any] = iter(())
        self._index = 0
        """The input's positions so far."""
        self._failure: Exception | None = None
        self._ended = False

    @abstractmethod
    def _compute(self, chunk: list[Any], max_elements: int, max_bytes: int) -> None:
        """Add the elements made of `_block` to `chunk`, until it is enough or one fails."""

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
            self._compute(chunk, max_elements, max_bytes)
        return chunk

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
        try:
            elements = self._input.next_chunk(max_elements, max_bytes, lazy)
        except Exception:
            self._index += 1
            raise
        self._block = iter(elements)
        self._ended = not elements
        return elements

    def _fail(self, error: Exception) -> None:
        """Let the error of the position `_index` - 1 be raised after the chunk."""
        origin = Origin(self._node.kind, self._node.site, self._index - 1)
        self._failure = mark_failure(error, origin)
