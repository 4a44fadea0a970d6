"""Who reads which split of one pass over one source (DESIGN.md §3).

A split is *available*, then *assigned* to a task, then *begun*. Begun is for good: it is never
handed out again. What is assigned but not begun becomes available again when its task is lost.
"""

import heapq
from collections import Counter, defaultdict, deque

from stoker.dataset.tree.splits import ENDLESS

MAX_INDEX_SPLITS = 4096
"""An index source is cut into at most so many splits, whatever the cluster."""

ENDLESS_SPLIT = 1024
"""Elements in a split of an index source without end: workers stay close together."""

MAX_BATCH = 4096
"""The most splits assigned at once, of a source without end."""

REMEMBERED = 2 * MAX_BATCH
"""A task gives notice of fewer splits than so many before it is answered: of those begun longer ago
it never asks again, and of a source without end there is no room for all."""


class SplitBook:
    """One epoch of one source.

    Attributes:
        total: how many splits there are.
        assigned: split → the task that may begin it.
        begun: split → the task that reads or has read it, as far as it may ask again.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.assigned: dict[int, int] = {}
        self.begun: dict[int, int] = {}
        self._begun_by: Counter[int] = Counter()
        self._recent: dict[int, deque[int]] = defaultdict(deque)
        self._readers: set[int] = set()
        self._cursor = 0
        self._returned: list[int] = []

    @property
    def available(self) -> int:
        """How many splits no task holds."""
        return self.total - self._cursor + len(self._returned)

    @property
    def all_begun(self) -> bool:
        """Nothing is left that could be handed out, now or later."""
        return not self.available and not self.assigned

    def choose(self, want: int, workers: int, least: int = 1) -> list[int]:
        """The next splits to assign to one of `workers` tasks, in order.

        Batches shrink toward the end (a quarter of an even share), so that workers finish together;
        but not below `least`.
        """
        share = max(1, least, self.available // (4 * max(1, workers)))
        size = min(want, share, MAX_BATCH, self.available)
        chosen = heapq.nsmallest(size, self._returned)
        return chosen + list(range(self._cursor, self._cursor + size - len(chosen)))

    def is_available(self, split: int) -> bool:
        """Whether no task holds `split`."""
        if not 0 <= split < self.total:
            return False
        return split >= self._cursor or split in self._returned

    def assign(self, splits: list[int], task_id: int) -> None:
        """Assigns available splits."""
        self._readers.add(task_id)
        for split in splits:
            if split < self._cursor:
                self._returned.remove(split)
            else:
                # Splits between were skipped by a worker that presented an older assignment.
                self._returned.extend(range(self._cursor, split))
                self._cursor = split + 1
            self.assigned[split] = task_id
        heapq.heapify(self._returned)

    def begin(self, splits: list[int]) -> None:
        """Marks assigned splits begun by the task they are assigned to."""
        for split in splits:
            task_id = self.assigned.pop(split)
            self.begun[split] = task_id
            self._begun_by[task_id] += 1
            recent = self._recent[task_id]
            recent.append(split)
            if len(recent) > REMEMBERED:
                del self.begun[recent.popleft()]

    def give_back(self, task_id: int) -> None:
        """Makes available again what `task_id` was assigned and has not begun."""
        for split in [split for split, task in self.assigned.items() if task == task_id]:
            del self.assigned[split]
            heapq.heappush(self._returned, split)

    def leave(self, task_id: int) -> None:
        """The task will not present a split again.

        An endless `repeat` has a book for each epoch, so the last reader closes it.
        """
        self.give_back(task_id)
        self._readers.discard(task_id)
        if self.all_begun and not self._readers:
            self.begun.clear()
            self._recent.clear()

    def begun_by(self, task_id: int) -> int:
        """How many splits the task has begun."""
        return self._begun_by[task_id]


def split_total(count: int) -> int:
    """How many splits an index source of `count` elements is cut into."""
    return count // ENDLESS_SPLIT if count >= ENDLESS else min(count, MAX_INDEX_SPLITS)


def split_range(split: int, total: int, count: int) -> tuple[int, int]:
    """The elements ``[start, stop)`` of a split; sizes differ by at most one."""
    return split * count // total, (split + 1) * count // total
