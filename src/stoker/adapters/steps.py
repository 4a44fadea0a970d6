"""The steps of an epoch, in order, with the position after each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from stoker.adapters.ownership import next_in_list
from stoker.dataset.iterator import Iterator
from stoker.dataset.streams.failures import hide_own_frames


class Step(NamedTuple):
    """A step of an epoch.

    Attributes:
        batch: a list with the batch; empty at the end, or if there was an error.
        error: raised in place of the batch.
        position: elements and errors that were read up to here.
    """

    batch: list[Any]
    error: BaseException | None = None
    position: int = 0


@dataclass(frozen=True)
class Steps:
    """Reads the steps of an epoch: each converts an element, or a list of several elements.

    An error occupies its position, and reading may continue afterwards; of a list with errors the
    first is raised, after all its elements were read.

    Attributes:
        iterator: of the dataset.
        convert: makes a batch of the element or list, the only item of a list to be emptied.
        group_size: elements of a list; ``None``: single elements.
        drop_last: drop a last list that is shorter.
    """

    iterator: Iterator
    convert: Callable[[list[Any]], Any]
    group_size: int | None = None
    drop_last: bool = False

    def read(self) -> Step:
        """Return the next step, with the error that occupies its position."""
        batch: list[Any] = []
        try:
            holder = self._read_holder()
            if holder:
                batch.append(self.convert(holder))
        except Exception as error:  # noqa: BLE001 - raised where the user reads
            hide_own_frames(error)
            return Step([], error, self.iterator.position())
        return Step(batch, None, self.iterator.position())

    def _read_holder(self) -> list[Any]:
        """Return a list with the element or list; ``[]`` at the end."""
        if self.group_size is None:
            return next_in_list(self.iterator)
        group: list[Any] = []
        failure: Exception | None = None
        for _ in range(self.group_size):
            try:
                holder = next_in_list(self.iterator)
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
        if not group or (self.drop_last and len(group) < self.group_size):
            return []
        return [group]
