"""The interface of all record formats: read the records of a file, or skip without decoding."""

from abc import ABC, abstractmethod
from typing import Any

from stoker.dataset.formats.opening import FileBuffer


class RecordReader(ABC):
    """The records of a file, in order; an error occupies the position of its record.

    An error after which the next record cannot be found ends the file.

    A subclass keeps the offset of the next record in the buffer's block in `_at`, and its number in
    `_number`. A subclass moves the buffer only when there is no record to return, so that an error
    of the file comes after all records that could be read.

    Args:
        buffer: the file, at its beginning.
        start: the byte from which records are read and numbered.
    """

    def __init__(self, buffer: FileBuffer, start: int = 0) -> None:
        self._buffer = buffer
        self._start = start
        self._at = start
        self._number = 0
        self._failure: Exception | None = None
        self._ended = False

    def read(self) -> list[Any]:
        """Return the next records, as many as a block contains; ``[]`` at the end.

        Raises:
            DataLossError: if the next record is truncated or corrupt; names path, number, offset.
            InvalidArgumentError: if the next record is complete but not as declared.
            UnavailableError: if the file cannot be read.
        """
        if self._failure is None and not self._ended:
            try:
                records = self._parse()
            except Exception:
                self._ended = True
                self._number += 1
                raise
            if records:  # an error of `_failure` comes with the next call, at its position
                return records
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._ended = True
        return []

    def skip(self, n: int) -> int:
        """Skip `n` records or errors as cheaply as the format allows.

        Returns:
            The number skipped, less than `n` only at the end.
        """
        left = n
        while left and not self._ended:
            if self._failure is not None:
                self._failure = None
                left -= 1
                continue
            try:
                skipped = self._skip(left)
            except Exception:  # noqa: BLE001 - the error occupies a position and ends the file
                self._ended = True
                skipped = 1
            else:
                self._ended = not skipped and self._failure is None
            self._number += skipped
            left -= skipped
        return n - left

    def close(self) -> None:
        """Close the file; idempotent."""
        self._buffer.close()

    @abstractmethod
    def _parse(self) -> list[Any]:
        """Read at least one record and add the number of records to `_number`.

        An error after which the next record can be found goes to `_failure`, is counted too, and
        ends the list. All remaining errors are raised.

        Returns:
            The records before the first error; ``[]`` if the error comes first, or at the end.
        """

    @abstractmethod
    def _skip(self, n: int) -> int:
        """Skip 1 to `n` records and return their number, 0 at the end; raises as `_parse` does."""

    def _where(self, at: int) -> str:
        """Name the next record, which begins at `at` in the block, for an error."""
        after = f" after byte {self._start}" if self._start else ""
        offset = self._buffer.offset + at
        return f"{self._buffer.path}: record {self._number}{after} at byte {offset}"
