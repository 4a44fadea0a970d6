"""enumerate: pairs elements with their positions."""

from typing import Any, ClassVar, cast

import numpy as np

from stoker.dataset.collation.tables import NumberTable, ZippedTable
from stoker.dataset.streams.rows.row_numbers import RowNumbers
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.dataset.tree.table import Table
from stoker.elements.spec import Spec, TensorSpec


class Enumerate(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields pairs of a position, from `start`, and its element; errors have positions, too."""

    kind: ClassVar[str] = "enumerate"
    forwards_elements: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    start: int = 0

    def element_spec(self) -> Spec:
        return (TensorSpec((), np.int64), self.input.element_spec())

    def table(self) -> Table | None:
        table = self.input.table()
        return None if table is None else ZippedTable([NumberTable(0, 1), table], (0, 1))

    def open(self, context: Context) -> Stream:
        return _EnumerateStream(context.open(self.input), self.start)


class _EnumerateStream(OneInputStream):
    def __init__(self, stream: Stream, start: int) -> None:
        super().__init__(stream)
        self._position = start

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        position = self._position
        self._position += 1  # an error takes a position too
        chunk = self._input.next_chunk(max_elements, max_bytes, lazy)
        self._position = position + len(chunk)
        if isinstance(chunk, RowNumbers):  # with `Context.as_rows`
            numbers = range(position, self._position)
            return cast("list[Any]", RowNumbers((numbers, *chunk.columns)))
        return list(enumerate(chunk, position))

    def advance(self, n: int) -> int:
        passed = self._input.advance(n)
        self._position += passed
        return passed
