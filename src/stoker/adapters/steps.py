"""The elements of one epoch, in order, with the position after each."""

from typing import Any

from stoker.dataset.iterator import Iterator


class Steps:
    """Reads the steps of one epoch: elements, or lists of several of them.

    An error occupies its position, and reading may continue after it; of a list with errors the
    first is raised, after all its elements were read.

    Args:
        iterator: of the dataset.
        group_size: elements of a list; ``None``: single elements.
        drop_last: drop a last list that is shorter.
    """

    def __init__(self, iterator: Iterator, group_size: int | None, drop_last: bool) -> None:
        self._iterator = iterator
        self._group_size = group_size
        self._drop_last = drop_last

    def read(self) -> list[Any]:
        """Return the next step in a list of one, which the caller empties; ``[]`` at the end."""
        if self._group_size is None:
            return self._read_one()
        group: list[Any] = []
        failure: Exception | None = None
        for _ in range(self._group_size):
            try:
                holder = self._read_one()
            except Exception as error:  # noqa: BLE001 - raised when the list is complete
                failure = failure or error
                continue
            if not holder:
                break
            group += holder
        try:
            if failure is not None:
                raise failure
        finally:  # this frame, which the traceback refers to, must not refer to the error
            del failure
        if not group or (self._drop_last and len(group) < self._group_size):
            return []
        return [group]

    def _read_one(self) -> list[Any]:
        try:
            return [next(self._iterator)]
        except StopIteration:
            return []

    def position(self) -> int:
        """Return the number of elements and errors that were read."""
        return self._iterator.position()
