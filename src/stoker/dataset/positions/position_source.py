"""The source of a stream of positions: yields the elements at the positions that are wanted."""

from collections.abc import Iterator
from typing import Any, cast

from msgspec.structs import replace

from stoker.dataset.positions.shared_rows import SharedRows
from stoker.dataset.positions.turns import Turns
from stoker.dataset.streams.rows.row_numbers import EMPTY, RowNumbers, concatenated
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
        turns = cast(Turns, context.splits)
        if context.as_rows:
            return _RowNumberStream(turns, context.numbers[self], rows)
        return _RowStream(turns, context.numbers[self], rows, table)


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
    """Yields the elements at wanted positions of a table.

    Args:
        turns: supplies the positions; waits until some are wanted.
        source: number of the source.
        rows: reads the rows; ``None`` if the numbers of the rows are their positions.
        table: builds the elements; ``None`` if row numbers are yielded.
    """

    def __init__(
        self, turns: Turns, source: int, rows: SharedRows | None, table: Table | None = None
    ) -> None:
        self._turns = turns
        self._wanted = turns.open(source)
        self._rows = rows
        self._table = table
        self._positions = range(0)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        assert self._table is not None
        most = min(max_elements, max_bytes // self._table.element_bytes)
        rows = self._read(max(1, most))
        return [] if rows is None else self._table.elements(rows.columns)

    def _read(self, most: int) -> RowNumbers | None:
        """Return the next rows of one range; ``None`` at the end."""
        positions = self._positions or self._next_range()
        if not positions:
            return None
        first = positions[: min(most, _MOST_ROWS)]
        rows = RowNumbers((first,)) if self._rows is None else self._rows.read(first)
        self._positions = positions[len(rows) :]
        return rows

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
        positions = next(self._wanted, None)
        if positions is None:
            self._wanted = iter(())  # later calls find the end, too
            return range(0)
        return positions


class _RowNumberStream(_RowStream):
    """Yields the row numbers at wanted positions.

    The batches of a consumer are ranges apart: a chunk for each would become a frame for each.
    """

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        parts: list[RowNumbers] = []
        left = min(max_elements, _MOST_ROWS)
        while left > 0 and (not parts or self._positions or self._turns.has_more):
            rows = self._read(left)
            if rows is None:
                break
            parts.append(rows)
            left -= len(rows)
        return cast("list[Any]", concatenated(parts) if parts else EMPTY)
