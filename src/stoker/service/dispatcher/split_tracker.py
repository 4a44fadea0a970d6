"""States of the splits in one epoch of one source.

A split is *available*, then *assigned* to a task, then *begun*. A begun split is never assigned
again. An assigned split becomes available again when its task is lost before it begins the split.
"""

from collections import Counter, defaultdict, deque

from stoker.dataset.tree.splits import ENDLESS
from stoker.service.dispatcher.split_ranges import SplitRanges

MAX_INDEX_SPLITS = 4096
"""Most splits of an index source, for clusters of up to 512 workers."""

SPLITS_PER_WORKER = 8
"""Splits of an index source for each worker of a larger cluster."""

ENDLESS_SPLIT = 1024
"""Elements in a split of an infinite index source: workers stay close together."""

MAX_BATCH = 4096
"""Most splits assigned in one message, reached by infinite sources."""

REMEMBERED = 2 * MAX_BATCH
"""Begun splits remembered for each task. A task announces fewer before it is answered, so it never
asks about older ones; an infinite source has no room for all."""


class SplitTracker:
    """The splits of one epoch of one source.

    Attributes:
        total: the number of splits.
        assigned: split → the task that may begin it.
        begun: split → the task that has begun it, for the last `REMEMBERED` splits of each task.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.assigned: dict[int, int] = {}
        self.begun: dict[int, int] = {}
        self._begun_by: Counter[int] = Counter()
        self._recent: dict[int, deque[int]] = defaultdict(deque)
        self._readers: set[int] = set()
        self._cursor = 0
        self._assigned_to: dict[int, set[int]] = defaultdict(set)
        self._returned = SplitRanges()

    @property
    def available(self) -> int:
        """The number of splits that are neither assigned nor begun."""
        return self.total - self._cursor + len(self._returned)

    @property
    def all_begun(self) -> bool:
        """True if every split is begun, so that none will be assigned any more."""
        return not self.available and not self.assigned

    def choose(self, want: int, workers: int, least: int = 1) -> list[int]:
        """Return the next splits to assign to one of `workers` tasks, in order.

        Batches shrink toward the end, to a quarter of an even share, so that workers finish
        together; but not below `least`.
        """
        # Small batches near the end: a worker with many splits would be waited for alone.
        share = max(1, least, self.available // (4 * max(1, workers)))
        size = min(want, share, MAX_BATCH, self.available)
        chosen = self._returned.first(size)
        return chosen + list(range(self._cursor, self._cursor + size - len(chosen)))

    def is_available(self, split: int) -> bool:
        """Return whether `split` is neither assigned nor begun."""
        if not 0 <= split < self.total:
            return False
        return split >= self._cursor or split in self._returned

    def assign(self, splits: list[int], task_id: int) -> None:
        """Assign available splits to a task."""
        self._readers.add(task_id)
        for split in splits:
            if split < self._cursor:
                self._returned.remove(split)
            else:
                # A worker that announces splits of an older assignment skips those between.
                self._returned.add(self._cursor, split)
                self._cursor = split + 1
            self.assigned[split] = task_id
            self._assigned_to[task_id].add(split)

    def begin(self, splits: list[int]) -> None:
        """Mark assigned splits as begun by their tasks."""
        for split in splits:
            task_id = self.assigned.pop(split)
            self._assigned_to[task_id].remove(split)
            self.begun[split] = task_id
            self._begun_by[task_id] += 1
            recent = self._recent[task_id]
            recent.append(split)
            if len(recent) > REMEMBERED:
                del self.begun[recent.popleft()]

    def give_back(self, task_id: int) -> None:
        """Make the splits available that are assigned to `task_id` and not begun."""
        for split in self._assigned_to.pop(task_id, ()):
            del self.assigned[split]
            self._returned.add(split, split + 1)

    def leave(self, task_id: int) -> None:
        """Remove a task that will not ask for splits of this epoch again."""
        self.give_back(task_id)
        self._readers.discard(task_id)

    @property
    def is_read(self) -> bool:
        """True if all splits are begun and every task that had some has left."""
        return self.all_begun and not self._readers

    @property
    def begun_counts(self) -> Counter[int]:
        """The number of splits that each task has begun."""
        return self._begun_by

    def begun_by(self, task_id: int) -> int:
        """Return the number of splits that the task has begun."""
        return self._begun_by[task_id]


def split_total(count: int, workers: int) -> int:
    """Return the number of splits of an index source of `count` elements."""
    if count >= ENDLESS:
        return count // ENDLESS_SPLIT
    return min(count, max(MAX_INDEX_SPLITS, SPLITS_PER_WORKER * workers))


def split_range(split: int, total: int, count: int) -> tuple[int, int]:
    """Return the range ``[start, stop)`` of a split; sizes differ by at most one."""
    return split * count // total, (split + 1) * count // total
