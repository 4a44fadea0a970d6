"""zip: several streams that are read in step, and a zip of row numbers."""

from abc import abstractmethod
from typing import Any, Self, cast

from stoker.dataset.streams.rows.row_numbers import EMPTY, Column, RowNumbers
from stoker.dataset.streams.stream import NO_LIMIT, Stream


class StreamsInStep(Stream):
    """Reads several streams in step; ends with the shortest.

    Args:
        streams: the inputs.
        cardinalities: of the inputs.
    """

    def __init__(self, streams: list[Stream], cardinalities: list[int]) -> None:
        self._streams = streams
        # Inputs known to end come first, so that endless inputs are not skipped further than
        # needed.
        self._skip_order = sorted(range(len(streams)), key=lambda i: cardinalities[i] < 0)
        self._ended = False

    @abstractmethod
    def _drop(self, i: int, count: int) -> int:
        """Drop up to `count` buffered elements of input `i`; return the number dropped."""

    def copy(self) -> Self:
        copied = super().copy()
        copied._streams = [stream.copy() for stream in self._streams]
        return copied

    def copy_bytes(self) -> int:
        return sum(stream.copy_bytes() for stream in self._streams)

    def advance(self, n: int) -> int:
        if self._ended:
            return 0
        skipped = n
        for i in self._skip_order:
            dropped = self._drop(i, skipped)
            if skipped > dropped:
                skipped = dropped + self._streams[i].advance(skipped - dropped)
        self._ended = skipped < n
        return skipped

    def close(self) -> None:
        self._ended = True
        for stream in self._streams:
            stream.close()


class ZippedRows(StreamsInStep):
    """Yields the row numbers of the elements that a zip of the elements would yield.

    The inputs are opened with `Context.as_rows`.
    """

    def __init__(self, streams: list[Stream], cardinalities: list[int]) -> None:
        super().__init__(streams, cardinalities)
        # The rows of each input that another has not matched yet.
        self._buffers = [EMPTY for _ in streams]

    def copy(self) -> Self:
        copied = super().copy()
        copied._buffers = list(self._buffers)
        return copied

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        count = 0 if self._ended else self._fill(max_elements)
        if not count:
            return []
        columns: list[Column] = []
        for i, buffer in enumerate(self._buffers):
            columns += buffer[:count].columns
            self._buffers[i] = buffer[count:]
        return cast("list[Any]", RowNumbers(tuple(columns)))

    def _drop(self, i: int, count: int) -> int:
        before = len(self._buffers[i])
        self._buffers[i] = self._buffers[i][count:]
        return before - len(self._buffers[i])

    def _fill(self, count: int) -> int:
        """Buffer rows of every input; return how many all have, at most `count`; 0 at the end."""
        for i, stream in enumerate(self._streams):
            if not self._buffers[i]:
                # No more than the preceding inputs have.
                chunk = stream.next_chunk(count, NO_LIMIT)
                if not chunk:
                    self._ended = True
                    return 0
                self._buffers[i] = cast("RowNumbers", chunk)
            count = min(count, len(self._buffers[i]))
        return count
