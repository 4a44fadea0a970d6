"""flat_map: maps each element to a dataset and concatenates these."""

from collections.abc import Iterator
from operator import length_hint
from typing import Any, ClassVar

from stoker.dataset.nodes.nested import NestedDatasets
from stoker.dataset.streams.sequence import SequenceStream
from stoker.dataset.streams.stream import READ_AHEAD_BYTES, READ_AHEAD_ELEMENTS, Stream
from stoker.dataset.tree.node import Context, FunctionOfElements
from stoker.dataset.unpacking import arguments_of


class FlatMap(FunctionOfElements, frozen=True, eq=False, kw_only=True):
    """Yields the elements of the dataset that the function returns for each element."""

    kind: ClassVar[str] = "flat_map"

    def open(self, context: Context) -> Stream:
        nested = NestedDatasets(context, self, self.function.value)
        return _FlatMapStream(context.open(self.input), nested)


class _FlatMapStream(SequenceStream):
    def __init__(self, stream: Stream, nested: NestedDatasets) -> None:
        super().__init__()
        self._input = stream
        self._nested = nested
        self._block: Iterator[Any] = iter(())
        self._index = 0

    def _open_next(self, max_elements: int, max_bytes: int, lazy: bool) -> Stream | None:
        if not length_hint(self._block):
            self._block = iter(self._read())
        for element in self._block:
            self._index += 1
            return self._nested.open(self._index - 1, arguments_of(element))
        return None

    def _read(self) -> list[Any]:
        try:
            # Reading the elements of a range singly takes three times as long.
            return self._input.next_chunk(READ_AHEAD_ELEMENTS, READ_AHEAD_BYTES, True)
        except Exception:
            self._index += 1
            raise

    def close(self) -> None:
        self._block = iter(())
        super().close()
        self._input.close()
