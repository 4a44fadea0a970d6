"""What the formats share: reading the records of one file, and passing them undecoded."""

from abc import ABC, abstractmethod
from typing import Any

from stoker.dataset.formats.opening import Window


class Reader(ABC):
    """The records of one file, in order; an error occupies the position of its record.

    After an error behind which nothing can be trusted, the file has ended.

    A subclass keeps in `_at` where in the window's block the next record begins, and in `_number`
    which it is. It moves the window only when it holds no record, so that an error of the file
    stands behind all that could be read.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._at = 0
        self._number = 0
        self._failure: Exception | None = None
        self._ended = False

    def read(self) -> list[Any]:
        """The next records, as many as a block gives; ``[]`` at the end.

        Raises:
            DataLossError: the next record is truncated or corrupt; names file, offset and number.
            InvalidArgumentError: it is whole, and not as it shall be.
            UnavailableError: the file cannot be read.
        """
        if self._failure is None and not self._ended:
            try:
                records = self._parse()
            except Exception:
                self._ended = True
                self._number += 1
                raise
            if records:
                return records
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._ended = True
        return []

    def skip(self, n: int) -> int:
        """Passes `n` positions as cheaply as the format allows.

        Returns:
            How many were passed, less than `n` only at the end.
        """
        left = n
        while left and not self._ended:
            if self._failure is not None:
                self._failure = None
                left -= 1
                continue
            try:
                passed = self._pass(left)
            except Exception:  # noqa: BLE001 - an error's position, behind which the file has ended
                self._ended = True
                passed = 1
            else:
                self._ended = not passed and self._failure is None
            self._number += passed
            left -= passed
        return n - left

    def close(self) -> None:
        """Closes the file; idempotent."""
        self._window.close()

    @abstractmethod
    def _parse(self) -> list[Any]:
        """Reads records and counts them in `_number`, one at least.

        Empty at the end, or when a failure is first: behind one from which reading can go on,
        counted too, it stops and puts it into `_failure`. It raises what ends the file.
        """

    @abstractmethod
    def _pass(self, n: int) -> int:
        """Passes up to `n` records, one at least; 0 at the end. Raises as `_parse` does."""

    def _where(self, at: int) -> str:
        """How to name the record that begins there, in errors."""
        return f"{self._window.path}: record {self._number} at byte {self._window.offset + at}"
