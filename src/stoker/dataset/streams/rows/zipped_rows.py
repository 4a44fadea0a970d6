"""zip of row numbers: the columns of several streams side by side."""

from typing import Any, cast

from stoker.dataset.streams.rows.row_numbers import EMPTY, Column, RowNumbers
from stoker.dataset.streams.stream import Stream

_NO_LIMIT = 1 << 62


class ZippedRows(Stream):
    """Yields the row numbers of the elements that a zip of the elements would yield.

    Args:
        streams: the inputs, opened with `Context.as_rows`.
        endless: whether each input is endless; endless inputs are skipped last.
    """

    def __init__(self, streams: list[Stream], endless: list[bool]) -> None:
        self._streams = streams
        self._skip_order = sorted(range(len(streams)), key=endless.__getitem__)
        self._buffers = [EMPTY for _ in streams]
        """The rows of each input that another has not matched yet."""
        self._ended = False

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        count = 0 if self._ended else self._fill(max_elements)
        if not count:
            return []
        columns: list[Column] = []
        for i, buffer in enumerate(self._buffers):
            columns += buffer[:count].columns
            self._buffers[i] = buffer[count:]
        return cast("list[Any]", RowNumbers(tuple(columns)))

    def advance(self, n: int) -> int:
        if self._ended:
            return 0
        skipped = n
        for i in self._skip_order:
            buffered = min(skipped, len(self._buffers[i]))
            self._buffers[i] = self._buffers[i][buffered:]
            if skipped > buffered:
                skipped = buffered + self._streams[i].advance(skipped - buffered)
        self._ended = skipped < n
        return skipped

    def close(self) -> None:
        self._ended = True
        for stream in self._streams:
            stream.close()

    def _fill(self, count: int) -> int:
        """Buffer rows of every input; return how many all have, at most `count`; 0 at the end."""
        for i, stream in enumerate(self._streams):
            if not self._buffers[i]:
                # No more than the preceding inputs have.
                chunk = stream.next_chunk(count, _NO_LIMIT)
                if not chunk:
                    self._ended = True
                    return 0
                self._buffers[i] = cast("RowNumbers", chunk)
            count = min(count, len(self._buffers[i]))
        return count
