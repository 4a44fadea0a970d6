"""flat_map: maps each element to a dataset and concatenates these."""

from collections.abc import Iterator
from operator import length_hint
from typing import Any, ClassVar

from stoker.dataset.nodes.nested import NestedDatasets
from stoker.dataset.streams.stream import (
    READ_AHEAD_BYTES,
    READ_AHEAD_ELEMENTS,
    OneInputStream,
    Stream,
)
from stoker.dataset.tree.node import Context, FunctionOfElements
from stoker.dataset.unpacking import arguments_of


class FlatMap(FunctionOfElements, frozen=True, eq=False, kw_only=True):
    """Yields the elements of the dataset that the function returns for each element."""

    kind: ClassVar[str] = "flat_map"

    def open(self, context: Context) -> Stream:
        nested = NestedDatasets(context, self, self.function.value)
        return _FlatMapStream(context.open(self.input), nested)


class _FlatMapStream(OneInputStream):
    def __init__(self, stream: Stream, nested: NestedDatasets) -> None:
        super().__init__(stream)
        self._nested = nested
        self._block: Iterator[Any] = iter(())
        self._index = 0
        self._inner: Stream | None = None

    def _open_next(self) -> Stream | None:
        """Open the dataset of the next element; return None at the end."""
        if not length_hint(self._block):
            self._block = iter(self._read())
        for element in self._block:
            self._index += 1
            self._inner = self._nested.open(self._index - 1, arguments_of(element))
            return self._inner
        return None

    def _read(self) -> list[Any]:
        try:
            return self._input.next_chunk(READ_AHEAD_ELEMENTS, READ_AHEAD_BYTES, True)
        except Exception:
            self._index += 1
            raise

    def _close_inner(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close()

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        while inner := self._inner or self._open_next():
            if chunk := inner.next_chunk(max_elements, max_bytes, lazy):
                return chunk
            self._close_inner()
        return []

    def advance(self, n: int) -> int:
        left = n
        while left:
            try:
                inner = self._inner or self._open_next()
            except Exception:  # noqa: BLE001 - user code may raise anything
                left -= 1  # an error's position
                continue
            if inner is None:
                break
            skipped = inner.advance(left)
            if skipped < left:
                self._close_inner()
            left -= skipped
        return n - left

    def close(self) -> None:
        self._block = iter(())
        self._close_inner()
        self._input.close()
