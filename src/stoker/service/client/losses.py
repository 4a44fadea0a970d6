"""Losses that a client hears of: counted, and logged or raised."""

from collections import deque

from stoker.service import messages as m


class Losses:
    """Totals of what was lost; each loss is logged or raised once.

    Args:
        raised: losses are raised by the next read instead of logged.

    Attributes:
        totals: of lost tasks, of the splits they had begun, and of the elements that other clients
            lost. Replaced when it changes.
    """

    def __init__(self, *, raised: bool) -> None:
        self.totals = {"tasks_lost": 0, "splits_lost": 0, "elements_lost": 0}
        self._raised = raised
        self._to_raise: deque[str] = deque()
        self._dropped: dict[int, int] = {}

    def task_lost(self, lost: m.TaskLost) -> str | None:
        """Count a task that was lost before its end; return what to log, if it is not raised."""
        self._count(tasks_lost=1, splits_lost=lost.splits_begun, elements_lost=lost.elements or 0)
        # Static shards: another worker reads the shard anew, so nothing is missing.
        if lost.read_again:
            return (
                f"worker {lost.worker} was lost: {lost.reason}. {lost.read_again.capitalize()} is "
                "read again from its beginning: its elements that were read come twice"
            )
        if lost.elements is not None:
            what = f"Up to {lost.elements} elements are lost"
        else:
            splits = f" of the {lost.splits_begun} splits it had begun" if lost.splits_begun else ""
            what = f"Elements{splits} that had not arrived here are lost"
        return self._report(f"worker {lost.worker} was lost: {lost.reason}. {what}")

    def elements_dropped(self, dropped: m.ElementsDropped) -> str | None:
        """Count elements that a task had sent to another client, which was lost; as `task_lost`."""
        # The dispatcher sends totals, and repeats them on a new session.
        elements = dropped.elements - self._dropped.get(dropped.task_id, 0)
        if elements <= 0:
            return None
        self._dropped[dropped.task_id] = dropped.elements
        self._count(elements_lost=elements)
        return self._report(
            f"another client was lost, with {elements} elements that worker {dropped.worker} had "
            "sent it"
        )

    def take(self) -> str | None:
        """Return a loss that the next read raises, each once; ``None`` if there is none."""
        return self._to_raise.popleft() if self._to_raise else None

    def _count(self, **counts: int) -> None:
        self.totals = {name: n + counts.get(name, 0) for name, n in self.totals.items()}

    def _report(self, text: str) -> str | None:
        if not self._raised:
            return text
        self._to_raise.append(text)
        return None
