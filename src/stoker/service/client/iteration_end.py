"""The end of an iteration, which the dispatcher and other clients may delay."""

from collections.abc import Mapping

from stoker.service.client.orders.order import Order
from stoker.service.client.task_cursor import TaskCursor

END_SECONDS = 0.25
"""Longest wait for the dispatcher's answer to the end of a task, with TensorFlow's timing. A worker
that registered before is then read, too."""


# The end is confirmed: another client of the job may close and return elements after a worker has
# sent `TaskEnd`. (docs/decisions/063)
class IterationEnd:
    """Decides whether all elements of an iteration are read.

    Args:
        order: the chunks that have arrived.
        cursors: the position in each task.
        awaits_answers: the end of a task waits for the dispatcher's answer.

    Attributes:
        computed: as in `Tasks`.
    """

    def __init__(
        self, order: Order, cursors: Mapping[int, TaskCursor], *, awaits_answers: bool
    ) -> None:
        self.computed = False
        self._order = order
        self._cursors = cursors
        self._awaits_answers = awaits_answers
        self._unanswered_since: float | None = None

    def task_read(self, now: float) -> None:
        """Note that the dispatcher is notified of the end of a task."""
        self._unanswered_since = now if self._awaits_answers else None

    def answered(self) -> None:
        """Note that the dispatcher has answered."""
        self._unanswered_since = None

    @property
    def reached(self) -> bool:
        """True if all is read, but the dispatcher or other clients may delay the end."""
        return self._order.is_over(self.computed, all(x.over for x in self._cursors.values()))

    @property
    def expected(self) -> bool:
        """True if all is read but the end may wait for an answer."""
        return self._unanswered_since is not None and self.reached

    def awaits_answer(self, now: float) -> bool:
        """Return whether the end waits for the answer of the dispatcher."""
        since = self._unanswered_since
        return since is not None and now - since < END_SECONDS

    def take_unsure(self) -> list[TaskCursor]:
        """Return the tasks whose workers must confirm the end, each once.

        Another client may have given elements back since; they answer with `TaskEnd` or elements.
        """
        unsure = [x for x in self._cursors.values() if x.open and x.ended and not x.confirmed]
        for cursor in unsure:
            cursor.ended, cursor.confirmed = False, True
        return unsure
