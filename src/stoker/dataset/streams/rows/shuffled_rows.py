"""shuffle of row numbers: the draws of a shuffle, made for whole chunks."""

from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from stoker.dataset.streams.draws import Draws, swap
from stoker.dataset.streams.rows.row_numbers import EMPTY, RowNumbers, as_array
from stoker.dataset.streams.stream import NO_LIMIT, OneInputStream, Stream

# The most row numbers that are read in a step where few numbers are needed.
_BLOCK = 1 << 16

# Replaying sorts the buffer, which takes about as long as this number of draws for each slot.
_REPLAYED = 4

_Columns = list[npt.NDArray[np.int64]]


class ShuffledRows(OneInputStream):
    """Yields the row numbers of the elements that a shuffle of the elements would yield.

    Reading its input calls no functions, and fails only where splits are assigned; the next call
    then continues.

    Args:
        stream: the input, opened with `Context.as_rows`.
        size: elements in the buffer.
        draws: draws slots of the buffer.
        cardinality: cardinality of the input; None if unknown.
    """

    def __init__(self, stream: Stream, size: int, draws: Draws, cardinality: int | None) -> None:
        super().__init__(stream)
        self._size = size
        self._draws = draws
        self._cardinality = cardinality
        self._read = 0
        # The buffer while being filled.
        self._chunks: list[_Columns] = []
        self._buffer: _Columns | None = None
        # The permuted rest, after the end of the input.
        self._rest: RowNumbers | None = None

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        self._fill_once()
        buffer = self._buffer  # `close` may come from another thread
        if buffer is not None:
            chunk = self._read_columns(min(max_elements, self._draws.ready()))
            if chunk is not None:
                drawn = swap(buffer, self._draws.take(len(chunk[0])), chunk)
                return cast("list[Any]", RowNumbers(tuple(drawn)))
            self._permute_rest(buffer)
        rest = self._rest or EMPTY
        self._rest = rest[max_elements:]
        return cast("list[Any]", rest[:max_elements])

    def copy(self) -> Self:
        self._fill_once()
        copied = super().copy()
        copied._draws = self._draws.copy()
        if self._buffer is not None:  # draws change the buffer in place; the rest never changes
            copied._buffer = [column.copy() for column in self._buffer]
        return copied

    def copy_bytes(self) -> int:
        self._fill_once()
        return super().copy_bytes() + sum(column.nbytes for column in self._buffer or ())

    def advance(self, n: int) -> int:
        skipped = 0
        if self._rest is None and self._cardinality is not None and n > _REPLAYED * self._size:
            skipped = self._replay(n)
        while skipped < n:
            chunk = self.next_chunk(n - skipped, NO_LIMIT)
            if not chunk:
                break
            skipped += len(chunk)
        return skipped

    def close(self) -> None:
        self._chunks, self._buffer, self._rest = [], None, EMPTY
        self._input.close()

    def _read_columns(self, most: int) -> _Columns | None:
        """Read row numbers; None at the end."""
        chunk = cast("RowNumbers", self._input.next_chunk(most, NO_LIMIT))
        if not chunk:
            return None
        self._read += len(chunk)
        return [as_array(column) for column in chunk.columns]

    def _fill_once(self) -> None:
        if self._buffer is None and self._rest is None:
            self._fill()

    def _fill(self) -> None:
        while (left := self._size - _length(self._chunks)) > 0:
            chunk = self._read_columns(left)
            if chunk is None:
                # A copy of a whole table would take as long as its permutation.
                chunks, self._chunks = self._chunks, []
                self._permute_rest(chunks[0] if len(chunks) == 1 else _joined(chunks))
                return
            self._chunks.append(chunk)
        # New memory, since draws change the buffer in place, and chunks may belong to the input.
        buffer = _joined(self._chunks)
        if self._read == self._cardinality:
            # The whole input is buffered: its permutation never changes, so that copies share it.
            self._permute_rest(buffer)
        else:
            self._buffer, self._chunks = buffer, []

    def _permute_rest(self, columns: _Columns) -> None:
        count = len(columns[0]) if columns else 0
        self._keep(columns, self._draws.permutation(count))

    def _keep(self, columns: _Columns, order: npt.NDArray[np.int64]) -> None:
        """Keep the buffered rows in this order as the rest."""
        rest = tuple([column[order] for column in columns])
        self._rest = RowNumbers(rest) if rest else EMPTY
        self._chunks, self._buffer = [], None

    def _replay(self, n: int) -> int:
        """Skip up to `n` positions by replaying the draws; read rows that stay buffered."""
        assert self._cardinality is not None
        before = _joined(self._chunks) if self._buffer is None else self._buffer
        buffered = len(before[0]) if before else 0
        replay = self._draws.replay(buffered, self._read, self._cardinality, n)
        slots, positions = replay.needed()
        read = self._read_needed(positions, replay.inputs)
        columns = []
        for i in range(len(read) or len(before)):
            column = np.empty(len(replay.origins), np.int64)
            if before:
                column[:buffered] = before[i]
            if read:
                column[slots] = read[i]
            columns.append(column)
        if replay.order is None:
            self._buffer, self._chunks = columns, []
            return n
        rest = n - replay.swapped
        self._keep(columns, replay.order[rest:])
        return replay.swapped + min(rest, len(replay.order))

    def _read_needed(self, positions: npt.NDArray[np.int64], count: int) -> _Columns:
        """Read `count` inputs; return the rows at these positions, which are in order."""
        found: list[_Columns] = []
        stop = self._read + count
        at = done = 0
        while done < len(positions):
            at += self._skip(int(positions[done]) - at)
            chunk = self._read_columns(min(_BLOCK, count - at))
            if chunk is None:  # closed by another thread
                break
            end = int(np.searchsorted(positions, at + len(chunk[0])))
            found.append([column[positions[done:end] - at] for column in chunk])
            at += len(chunk[0])
            done = end
        self._skip(stop - self._read)
        return _joined(found)

    def _skip(self, count: int) -> int:
        skipped = self._input.advance(count) if count else 0
        self._read += skipped
        return skipped


def _joined(chunks: list[_Columns]) -> _Columns:
    """Return the columns of several chunks as new arrays; none if there is no chunk."""
    return [np.concatenate(parts) for parts in zip(*chunks, strict=True)]


def _length(chunks: list[_Columns]) -> int:
    return sum(len(chunk[0]) for chunk in chunks)
