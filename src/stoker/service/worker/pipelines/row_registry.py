"""Rows of tables that the tasks of a worker share."""

from typing import TypeAlias

from stoker.dataset.positions.shared_rows import SharedRows
from stoker.service import messages as m

_Key: TypeAlias = tuple[object, ...]


def _key(start: m.TaskStart) -> _Key:
    # The mode has the numbers of the nodes, on which draws depend.
    draws = start.seed, tuple(start.salts), start.mode
    return start.dataset_id, start.epoch, *draws


class RowRegistry:
    """The rows of each epoch of a dataset, as long as a task reads it; used under a lock.

    Consumers that are not of one job have a task each. A shuffle of a whole table holds 8 bytes a
    row, and all of its draws are made again by whoever begins to read.
    """

    def __init__(self) -> None:
        self._rows: dict[_Key, tuple[SharedRows, int]] = {}

    def acquire(self, start: m.TaskStart) -> SharedRows:
        """Return the rows for a task, until `release`."""
        rows, tasks = self._rows.get(_key(start)) or (SharedRows(), 0)
        self._rows[_key(start)] = rows, tasks + 1
        return rows

    def release(self, start: m.TaskStart) -> None:
        """End the use by a task; after the last one the rows are dropped."""
        rows, tasks = self._rows.pop(_key(start))
        if tasks > 1:
            self._rows[_key(start)] = rows, tasks - 1
