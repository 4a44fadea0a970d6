"""Elements built of row numbers when read."""

from typing import Any, cast

from stoker.dataset.streams.rows.row_numbers import EMPTY, RowNumbers
from stoker.dataset.streams.stream import NO_LIMIT, OneInputStream, Stream
from stoker.dataset.tree.table import Table

# Row numbers read together, which costs less; no function is called for row numbers.
_ROWS = 1 << 10


class RowElements(OneInputStream):
    """Yields the elements of a stream of row numbers.

    Args:
        stream: the input, opened with `Context.as_rows`.
        table: builds the elements.
    """

    def __init__(self, stream: Stream, table: Table) -> None:
        super().__init__(stream)
        self._table = table
        self._rows = EMPTY

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        rows = self._rows
        if not rows:
            rows = cast("RowNumbers", self._input.next_chunk(_ROWS, NO_LIMIT))
            if not rows:
                return []
        count = max(1, min(max_elements, max_bytes // self._table.element_bytes))
        self._rows = rows[count:]
        return self._table.elements(rows[:count].columns)

    def advance(self, n: int) -> int:
        read = min(n, len(self._rows))
        self._rows = self._rows[read:]
        return read + self._input.advance(n - read)

    def close(self) -> None:
        self._rows = EMPTY
        self._input.close()
