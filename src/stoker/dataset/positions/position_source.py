"""The source of a stream of positions: yields the elements at the positions that are wanted."""

from collections.abc import Iterator
from typing import Any, cast

from msgspec.structs import replace

from stoker.dataset.positions.shared_rows import SharedRows
from stoker.dataset.streams.rows.row_numbers import RowNumbers
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node
from stoker.dataset.tree.splits import SplitReader
from stoker.dataset.tree.table import Table
from stoker.elements.spec import Spec


class PositionSource(Node, frozen=True, eq=False, kw_only=True):
    """The elements of a tree at the positions that `Context.splits` yields as ranges.

    Attributes:
        whole: the tree, a table or a source that is read by positions. No input, since other
            streams than that of this node read it.
        rows: the `SharedRows` of a table that has inputs.
    """

    whole: Any
    rows: Any

    @property
    def stage_kind(self) -> str:
        return cast(Node, self.whole).stage_kind

    def element_spec(self) -> Spec:
        return cast(Node, self.whole).element_spec()

    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def table(self) -> Table | None:
        return cast(Node, self.whole).table()

    def open(self, context: Context) -> Stream:
        assert context.splits is not None
        whole, table = cast(Node, self.whole), self.table()
        if table is None:
            return whole.open(replace(context, splits=_EvenRanges(context.splits)))
        rows = cast(SharedRows, self.rows) if whole.inputs else None
        if rows is not None:
            rows.begin(whole, context)
        wanted = context.splits.open(context.numbers[self])
        return _RowStream(wanted, rows, None if context.as_rows else table)


class _EvenRanges(SplitReader):
    """Supplies an index source with ranges of consecutive positions."""

    def __init__(self, splits: SplitReader) -> None:
        self._splits = splits

    def open(self, source: int) -> Iterator[Any]:
        for positions in self._splits.open(source):
            if positions.step == 1:
                yield positions.start, positions.stop
            else:
                yield from ((position, position + 1) for position in positions)


# The most rows of a chunk whose elements are built.
_MOST_ROWS = 1 << 16


class _RowStream(Stream):
    """Yields rows at wanted positions, or the elements of these rows.

    Args:
        wanted: the positions; waits until some are wanted.
        rows: reads the rows; ``None`` if the numbers of the rows are their positions.
        table: builds the elements; ``None`` to yield row numbers.
    """

    def __init__(
        self, wanted: Iterator[range], rows: SharedRows | None, table: Table | None
    ) -> None:
        self._wanted = wanted
        self._rows = rows
        self._table = table
        self._positions = range(0)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        positions = self._positions or self._next_range()
        if not positions:
            return []
        most = min(max_elements, _MOST_ROWS)
        if self._table is not None:
            most = max(1, min(most, max_bytes // self._table.element_bytes))
        first = positions[:most]
        rows = RowNumbers((first,)) if self._rows is None else self._rows.read(first)
        self._positions = positions[len(rows) :]
        return (
            cast("list[Any]", rows) if self._table is None else self._table.elements(rows.columns)
        )

    def advance(self, n: int) -> int:
        left = n
        while left and (positions := self._positions or self._next_range()):
            self._positions = positions[left:]
            left -= len(positions) - len(self._positions)
        return n - left

    def close(self) -> None:
        self._positions = range(0)
        self._wanted = iter(())

    def _next_range(self) -> range:
        for positions in self._wanted:
            if positions:
                return positions
        self._wanted = iter(())  # later calls find the end, too
        return range(0)
