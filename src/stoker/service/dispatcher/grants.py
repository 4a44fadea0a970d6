"""Answers workers' requests for splits; a request that cannot be answered yet waits."""

from collections.abc import Callable
from typing import Any

from stoker.service import messages as m
from stoker.service.dispatcher.splits import SplitBook, split_range
from stoker.service.dispatcher.state import (
    Iteration,
    Record,
    SplitsAssigned,
    SplitsBegun,
    State,
    Task,
)


class SplitDesk:
    """Grants splits to tasks.

    Args:
        state: read here, changed only through `commit`.
        commit: applies a record.
        send: sends a grant to a task's worker.
    """

    def __init__(
        self,
        state: State,
        commit: Callable[[Record], None],
        send: Callable[[Task, m.SplitGrant], None],
    ) -> None:
        self._state = state
        self._commit = commit
        self._send = send
        self._waiting: dict[tuple[int, int, int], int] = {}

    def request(self, task: Task, request: m.SplitRequest) -> None:
        """Begins what the request gives notice of, then assigns more, or says that there is none."""
        book = task.iteration.book(request.source, request.repetition)
        begun = self._begin(task, book, request)
        if request.want:
            self._waiting[task.task_id, request.source, request.repetition] = request.want
        if request.begin:
            refused = [split for split in request.begin if split not in begun]
            key = (task.task_id, request.source, request.repetition)
            self._send(task, m.SplitGrant(*key, begun, refused))
        self.settle(task.iteration)

    def _begin(self, task: Task, book: SplitBook, request: m.SplitRequest) -> list[int]:
        """What the task may read. A split it presents from before a broken session counts if free."""
        mine = task.task_id
        known = [split for split in request.begin if book.begun.get(split) == mine]
        free = [split for split in request.begin if book.is_available(split)]
        if free:
            self._commit(SplitsAssigned(mine, request.source, request.repetition, free))
        new = [split for split in request.begin if book.assigned.get(split) == mine]
        if new:
            self._commit(SplitsBegun(mine, request.source, request.repetition, new))
        return known + new

    def settle(self, iteration: Iteration) -> None:
        """Answers every waiting request of the iteration that can be answered now."""
        for key, want in list(self._waiting.items()):
            task = self._state.tasks.get(key[0])
            if task is None or not task.running:
                del self._waiting[key]
            elif task.iteration is iteration:
                self._answer(task, key[1], key[2], want)

    def _answer(self, task: Task, source: int, repetition: int, want: int) -> None:
        book = task.iteration.book(source, repetition)
        key = (task.task_id, source, repetition)
        running = sum(1 for other in task.iteration.tasks.values() if other.running)
        chosen = book.choose(want, running)
        if chosen:
            del self._waiting[key]
            self._commit(SplitsAssigned(task.task_id, source, repetition, chosen))
            values = [(split, _value(task.iteration, source, split)) for split in chosen]
            self._send(task, m.SplitGrant(task.task_id, source, repetition, splits=values))
        elif book.all_begun:
            del self._waiting[key]
            self._send(task, m.SplitGrant(task.task_id, source, repetition, end=True))

    def forget(self, task_ids: set[int]) -> None:
        """Drops what waits for these tasks: they are gone, or will ask again."""
        for key in [key for key in self._waiting if key[0] in task_ids]:
            del self._waiting[key]


def _value(iteration: Iteration, source: int, split: int) -> Any:
    assert iteration.sources is not None
    info = iteration.sources[source]
    if info.count is None:
        return iteration.values[source][split]
    return split_range(split, info.splits, info.count)
