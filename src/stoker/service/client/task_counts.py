"""Totals of tasks, such as errors ignored, which a client adds to its statistics."""

from collections.abc import Mapping

from stoker.service.client.task_cursor import TaskCursor


class TaskCounts:
    """Adds up the differences between totals, so that nothing is counted twice.

    Attributes:
        new: the counts since the last `take`, without those of the order.
    """

    def __init__(self) -> None:
        self.new: dict[str, int] = {}
        self._of_order: dict[str, int] = {}

    def add(self, cursor: TaskCursor, totals: dict[str, int]) -> None:
        """Count the totals of a task, of which the last ones were counted before."""
        for name, total in totals.items():
            self.new[name] = self.new.get(name, 0) + total - cursor.counts.get(name, 0)
        cursor.counts = totals

    def take(self, of_order: Mapping[str, int]) -> dict[str, int]:
        """Return the counts since the last call.

        Args:
            of_order: the totals of the order in which tasks are read.
        """
        counts, self.new = self.new, {}
        for name, total in of_order.items():
            if total > (before := self._of_order.get(name, 0)):
                counts[name] = counts.get(name, 0) + total - before
                self._of_order[name] = total
        return counts
