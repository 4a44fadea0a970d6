"""filter: the elements a predicate accepts."""

import time
from collections.abc import Callable
from functools import partial
from itertools import chain, islice
from operator import length_hint
from typing import Any, ClassVar

from stoker.dataset.pickled import Pickled
from stoker.dataset.streams.blocks import BlockStream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.dataset.unpacking import apply

# A chunk is computed in blocks: one that takes this long is not doubled.
_BLOCK_SECONDS = 0.0005


class Filter(OneInput, frozen=True, eq=False, kw_only=True):
    """The elements for which the predicate is true."""

    kind: ClassVar[str] = "filter"
    function: Pickled

    def open(self, context: Context) -> Stream:
        return _FilterStream(context, self, self.input.open(context))


class _FilterStream(BlockStream):
    def __init__(self, context: Context, node: Filter, stream: Stream) -> None:
        super().__init__(context, node, stream)
        self._function: Callable[..., Any] = node.function.value
        self._predicate = self._function
        self._size = 1
        """Elements in a block that the predicate is called for without a look at the clock."""

    def _read(self, max_elements: int, max_bytes: int, lazy: bool) -> list[Any]:
        elements = super()._read(max_elements, max_bytes, lazy)
        # Calling without a wrapper is four times as fast; only tuples need it.
        unpacks = tuple in set(map(type, elements))
        self._predicate = partial(apply, self._function) if unpacks else self._function
        return elements

    def _compute(self, chunk: list[Any], max_elements: int, max_bytes: int) -> None:
        deadline = 0.0
        while left := length_hint(self._block):
            begun = time.perf_counter()
            # `extend` takes a predicate's StopIteration for the end, so the end is made to differ.
            failure: Exception | None = StopIteration()
            try:
                with self._keyed.over(self._block, self._index + left) as elements:
                    block = chain(islice(elements, self._size), _BLOCK_END)
                    room = max_elements - len(chunk)
                    chunk.extend(islice(filter(self._predicate, block), room))
            except _BlockEnd:
                failure = None
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                failure = error
            self._index += left - length_hint(self._block)
            if failure is not None and len(chunk) < max_elements:
                self._fail(failure)
                return
            now = time.perf_counter()
            if now - begun < _BLOCK_SECONDS:
                self._size = min(2 * self._size, 1 << 16)
            else:
                self._size = max(1, self._size // 2)
            deadline = deadline or begun + 2 * _BLOCK_SECONDS
            if chunk and (len(chunk) >= max_elements or now >= deadline):
                return


class _BlockEnd(Exception):  # noqa: N818 - no error
    """The predicate has seen all elements of a block."""


class _EndOfBlock:
    """An iterator that says so by raising."""

    def __iter__(self) -> "_EndOfBlock":
        return self

    def __next__(self) -> Any:
        raise _BlockEnd


_BLOCK_END = _EndOfBlock()
