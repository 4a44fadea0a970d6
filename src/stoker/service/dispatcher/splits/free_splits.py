"""Splits in an epoch of a source that no task has begun.

Volatile: after a restart of the dispatcher all splits are free, and workers ask again.
"""

from collections import defaultdict

from stoker.service.dispatcher.entities.split_ranges import SplitRanges, to_ranges
from stoker.service.dispatcher.entities.split_tracker import SplitTracker

MAX_BATCH = 4096
"""Most splits assigned in a message, reached by infinite sources."""


class FreeSplits:
    """The splits that are not begun: free, or assigned to a task that may begin them.

    An assigned split is free again when its task is lost before beginning the split.

    Args:
        tracker: the begun splits.

    Attributes:
        assigned: split → the task that may begin the split.
    """

    def __init__(self, tracker: SplitTracker) -> None:
        self.assigned: dict[int, int] = {}
        self._free = SplitRanges.of(tracker.begun.missing(tracker.total))
        self._assigned_to: dict[int, set[int]] = defaultdict(set)

    @property
    def available(self) -> int:
        """The number of splits that are neither assigned nor begun."""
        return len(self._free)

    @property
    def all_begun(self) -> bool:
        """True if every split is begun, so that none will be assigned any more."""
        return not self._free and not self.assigned

    @property
    def holders(self) -> list[int]:
        """The tasks to which splits are assigned."""
        return [task_id for task_id, splits in self._assigned_to.items() if splits]

    def choose(self, want: int, workers: int, least: int = 1) -> list[int]:
        """Return the next splits to assign to a task of `workers`, in order.

        Batches shrink toward the end, to a quarter of an even share, so that workers finish
        together; but not below `least`.
        """
        # Small batches near the end: a worker with many splits would be waited for alone.
        share = max(1, least, self.available // (4 * max(1, workers)))
        return self._free.first(min(want, share, MAX_BATCH))

    def assign(self, splits: list[int], task_id: int) -> None:
        """Assign free splits to a task."""
        # As ranges: each change is a search in a list, and splits are mostly consecutive.
        for start, stop in to_ranges(splits):
            self._free.remove(start, stop)
        self.assigned.update(dict.fromkeys(splits, task_id))
        self._assigned_to[task_id].update(splits)

    def may_begin(self, split: int, task_id: int) -> bool:
        """Return whether a task may begin a split, which is assigned to the task, or free.

        After a broken session a task may announce splits that were taken back.
        """
        holder = self.assigned.get(split)
        return split in self._free if holder is None else holder == task_id

    def begin(self, splits: list[int]) -> None:
        """Remove splits that are begun."""
        for split in splits:
            task_id = self.assigned.pop(split, None)
            # A split that was taken back, and is announced after all.
            if task_id is None:
                self._free.remove(split, split + 1)
            else:
                self._assigned_to[task_id].remove(split)

    def give_back(self, task_id: int) -> None:
        """Make the splits free that are assigned to a task."""
        splits = self._assigned_to.pop(task_id, set())
        for split in splits:
            del self.assigned[split]
        for start, stop in to_ranges(splits):
            self._free.add(start, stop)
