"""Batches of a table's rows, each gathered in one step."""

from typing import Any, cast

from stoker.dataset.streams.failures import StreamOrigin, raise_failure
from stoker.dataset.streams.rows.row_numbers import EMPTY, Column, RowNumbers, joined
from stoker.dataset.streams.stream import NO_LIMIT, OneInputStream, Stream
from stoker.dataset.tree.table import Allocate, Table
from stoker.elements.sizes import element_bytes

# Row numbers that are read in a call, of 8 bytes each; no function is called.
_ROWS = 1 << 12


class GatheredBatches(OneInputStream):
    """Yields the batches that `BatchStream` would stack of the elements.

    A lazy call returns several small batches: no batch calls a function.

    Args:
        stream: the input, opened with `Context.as_rows`.
        batch_size: rows in a batch; the last may have fewer.
        drop_remainder: drop a last batch that has fewer.
        table: builds the batches.
        allocate: allocates their arrays.
        origin: of the node, for errors of `allocate`.
    """

    def __init__(
        self,
        stream: Stream,
        batch_size: int,
        drop_remainder: bool,
        table: Table,
        allocate: Allocate,
        origin: StreamOrigin,
    ) -> None:
        super().__init__(stream)
        self._size = batch_size
        self._drop_remainder = drop_remainder
        self._table = table
        self._allocate = allocate
        self._origin = origin
        self._index = 0
        # The numbers of the rows that were read; the first `_at` of `_count` are used.
        self._columns: tuple[Column, ...] = ()
        self._count = self._at = 0
        self._batch_bytes = 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        most = min(max_elements, max_bytes // self._batch_bytes) if self._batch_bytes else 1
        stop = self._at + self._size
        if stop > self._count:
            self._read(self._size * max(1, most))
            stop = min(self._size, self._count)
            if not stop or (stop < self._size and self._drop_remainder):
                self._use(EMPTY)
                return []
        batches = [self._next_batch(stop)]
        if most > 1 or not self._batch_bytes:  # text differs in size
            self._batch_bytes = element_bytes(batches[0])
        while len(batches) < most and (stop := self._at + self._size) <= self._count:
            try:
                batches.append(self._next_batch(stop))
            except Exception:  # noqa: BLE001 - the next call raises the error
                self._at, self._index = stop - self._size, self._index - 1
                break
        return batches

    def advance(self, n: int) -> int:
        left = n * self._size
        used = min(left, self._count - self._at)
        self._at += used
        rows = used + (self._input.advance(left - used) if used < left else 0)
        full, rest = divmod(rows, self._size)
        skipped = full + (rest > 0 and not self._drop_remainder)
        self._index += skipped
        return skipped

    def close(self) -> None:
        self._count = self._at = 0
        self._input.close()

    def _use(self, rows: RowNumbers) -> None:
        self._columns, self._count, self._at = rows.columns, len(rows), 0

    def _read(self, least: int) -> None:
        """Read rows until there are enough for a batch; fewer at the end."""
        rows = RowNumbers(self._columns)[self._at :] if self._count else EMPTY
        self._use(rows)
        while len(rows) < self._size:
            chunk = self._input.next_chunk(max(least - len(rows), _ROWS), NO_LIMIT)
            if not chunk:
                return
            rows = joined(rows, cast("RowNumbers", chunk))
            self._use(rows)

    def _next_batch(self, stop: int) -> Any:
        """Return the batch of the rows before `stop`, which are used also by a failed batch."""
        start, self._at = self._at, stop
        self._index += 1
        try:
            columns = [column[start:stop] for column in self._columns]
            return self._table.batch(columns, self._allocate)
        except Exception as error:  # noqa: BLE001 - text may be of any type
            raise_failure(error, self._origin.of(self._index - 1))
