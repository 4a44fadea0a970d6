"""Reading of a stream of batches row by row."""

from collections.abc import Callable
from typing import Any

from stoker.dataset.collation.rows import row_count
from stoker.dataset.streams.failures import Origin, raise_failure
from stoker.dataset.streams.stream import Stream


class BatchReader:
    """Reads the batches of a stream, and their rows in order.

    A batch that fails, or cannot be cut into rows, counts as a single row.

    Args:
        stream: yields the batches.
        as_rows: converts a batch to a structure whose leaves can all be cut.
        origin: origin of the node that reads, for errors of `as_rows`.

    Attributes:
        rows: the current batch, converted by `as_rows`.
        at: index of its first unused row.
        left: number of its unused rows.
    """

    def __init__(self, stream: Stream, as_rows: Callable[[Any], Any], origin: Origin) -> None:
        self._stream = stream
        self._as_rows = as_rows
        self._origin = origin
        self._index = 0
        self._buffered: list[Any] = []  # the next batch last
        self._failure: Exception | None = None
        self.rows: Any = None
        self.at = 0
        self.left = 0

    def has_buffered(self) -> bool:
        """Return whether `open_next` can proceed without reading."""
        return bool(self._buffered)

    def open_next(self, max_batches: int, max_bytes: int) -> None:
        """Move to the next batch, which may be empty.

        Args:
            max_batches: limit of batches to read in a call.
            max_bytes: approximate limit of bytes to read in a call.

        Raises:
            StopIteration: at the end of the stream.
            Exception: the error at the batch's position; the next call continues afterwards.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if not self._buffered:
            # Reversed: batches are removed from the end of the list, where nothing moves.
            self._buffered = self._read(max_batches, max_bytes)[::-1]
            if not self._buffered:
                raise StopIteration
        batch = self._buffered.pop()
        index = self._index
        self._index += 1
        try:
            rows = self._as_rows(batch)
            self.left = row_count(rows)
        except Exception as error:  # noqa: BLE001 - arrays of other libraries may raise anything
            raise_failure(error, self._origin._replace(index=index))
        self.rows, self.at = rows, 0

    def keep(self, error: Exception) -> None:
        """Let the next `open_next` raise an error again, whose row was not used yet."""
        self._failure = error

    def _read(self, max_batches: int, max_bytes: int) -> list[Any]:
        try:
            return self._stream.next_chunk(max_batches, max_bytes)
        except Exception:
            self._index += 1
            raise

    def use(self, most: int) -> tuple[int, int]:
        """Use up to `most` of the rows left; return their start and stop."""
        start, count = self.at, min(most, self.left)
        self.at += count
        self.left -= count
        return start, start + count

    def advance(self, n: int) -> int:
        """Skip `n` rows; return the number skipped, less only at the end."""
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
            except Exception:  # noqa: BLE001 - the position is skipped, an error too
                left -= 1
        return n - left

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
