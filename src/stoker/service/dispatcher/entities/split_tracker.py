"""Begun splits in one epoch of one source: no other task ever reads them."""

import msgspec

from stoker.dataset.tree.splits import ENDLESS
from stoker.service.dispatcher.entities.split_ranges import SplitRanges

# Splits of an index source follow from arithmetic, for any cluster; batches of splits shrink so
# that workers finish together. (docs/decisions/037)
MAX_INDEX_SPLITS = 4096
"""Most splits of an index source, for clusters of up to 512 workers."""

SPLITS_PER_WORKER = 8
"""Splits of an index source for each worker of a larger cluster."""

ENDLESS_SPLIT = 1024
"""Elements in a split of an infinite index source: workers stay close together."""

REMEMBERED = 8192
"""Begun splits remembered for each task. A task announces fewer before it is answered, so it never
asks about older ones; an infinite source has no room for all."""


class SplitTracker(msgspec.Struct, array_like=True, eq=False):
    """The begun splits of one epoch of one source.

    Attributes:
        total: the number of splits.
        begun: all that are begun.
        begun_counts: the number of splits that each task has begun.
        recent: each task that has begun some and may begin more → the ranges of at least its last
            `REMEMBERED` splits, the latest last.
    """

    total: int
    begun: SplitRanges = msgspec.field(default_factory=SplitRanges)
    begun_counts: dict[int, int] = {}
    recent: dict[int, list[tuple[int, int]]] = {}

    def begin(self, ranges: list[tuple[int, int]], task_id: int) -> None:
        """Mark splits, none of which is begun, as begun by a task."""
        recent = self.recent.setdefault(task_id, [])
        count = 0
        for start, stop in ranges:
            self.begun.add(start, stop)
            count += stop - start
            if recent and recent[-1][1] == start and stop - recent[-1][0] <= REMEMBERED:
                recent[-1] = recent[-1][0], stop
            else:
                recent.append((start, stop))
        self.begun_counts[task_id] = self.begun_counts.get(task_id, 0) + count
        # Each range takes the room of one split, so that the list has a length of at most that.
        del recent[:-REMEMBERED]

    def has_begun(self, task_id: int, split: int) -> bool:
        """Return whether the task has begun `split`, if that is one of its last `REMEMBERED`."""
        if split not in self.begun:
            return False
        return any(start <= split < stop for start, stop in self.recent.get(task_id, ()))

    def leave(self, task_id: int) -> None:
        """Remove a task that will not ask for splits of this epoch again."""
        self.recent.pop(task_id, None)

    @property
    def is_read(self) -> bool:
        """True if all splits are begun and every task that had some has left."""
        # A task that has not left may announce splits again that it has begun.
        return len(self.begun) == self.total and not self.recent


def split_total(count: int, workers: int) -> int:
    """Return the number of splits of an index source of `count` elements."""
    if count >= ENDLESS:
        return count // ENDLESS_SPLIT
    return min(count, max(MAX_INDEX_SPLITS, SPLITS_PER_WORKER * workers))


def split_range(split: int, total: int, count: int) -> tuple[int, int]:
    """Return the range ``[start, stop)`` of a split; sizes differ by at most one."""
    return split * count // total, (split + 1) * count // total
