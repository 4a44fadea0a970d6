"""Reading batches row by row: a place in a stream of batches."""

from collections.abc import Callable
from typing import Any

from stoker.dataset.collation.rows import row_count
from stoker.dataset.streams.failures import Origin, mark_failure
from stoker.dataset.streams.stream import Stream


class BatchReader:
    """The batches of a stream, one at a time, and how far their rows are used.

    A batch that fails, or cannot be cut into rows, counts as one row.

    Args:
        stream: the batches.
        as_rows: from a batch to a structure whose leaves can all be cut.
        origin: of the node that reads, for errors of `as_rows`.

    Attributes:
        rows: the batch being used, as `as_rows` made it.
        at: the first of its rows not yet used.
        left: how many of its rows are not yet used.
    """

    def __init__(self, stream: Stream, as_rows: Callable[[Any], Any], origin: Origin) -> None:
        self._stream = stream
        self._as_rows = as_rows
        self._origin = origin
        self._index = 0
        self._waiting: list[Any] = []  # the next batch last
        self.rows: Any = None
        self.at = 0
        self.left = 0

    def waits(self) -> bool:
        """True where `open_next` would not have to read."""
        return bool(self._waiting)

    def open_next(self, max_batches: int, max_bytes: int) -> None:
        """Moves to the next batch, which may be empty.

        Args:
            max_batches: the most to read at once.
            max_bytes: about the most bytes to read at once.

        Raises:
            StopIteration: there is none.
            Exception: the error in its place, which is passed.
        """
        if not self._waiting:
            self._waiting = self._read(max_batches, max_bytes)[::-1]
            if not self._waiting:
                raise StopIteration
        batch = self._waiting.pop()
        index = self._index
        self._index += 1
        try:
            rows = self._as_rows(batch)
            self.left = row_count(rows)
        except Exception as error:
            mark_failure(error, self._origin._replace(index=index))
            raise
        self.rows, self.at = rows, 0

    def _read(self, max_batches: int, max_bytes: int) -> list[Any]:
        try:
            return self._stream.next_chunk(max_batches, max_bytes)
        except Exception:
            self._index += 1
            raise

    def use(self, most: int) -> tuple[int, int]:
        """Uses up to `most` of the rows left; returns where they start and stop."""
        start, count = self.at, min(most, self.left)
        self.at += count
        self.left -= count
        return start, start + count

    def advance(self, n: int) -> int:
        """Passes `n` rows; returns how many, less only at the end."""
        left = n
        while left:
            if self.left:
                start, stop = self.use(left)
                left -= stop - start
                continue
            try:
                self.open_next(1, 1 << 20)
            except StopIteration:
                break
            except Exception:  # noqa: BLE001 - the position is passed, whatever it holds
                left -= 1
        return n - left

    def close(self) -> None:
        """Closes the stream."""
        self._stream.close()
