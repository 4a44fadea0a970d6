"""Answers workers' requests for splits; a request that cannot be answered yet waits."""

from typing import Any, TypeAlias

from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.dispatcher.entities import Iteration, Task
from stoker.service.dispatcher.ledger import Ledger
from stoker.service.dispatcher.records import SplitsAssigned, SplitsBegun, SplitsDone
from stoker.service.dispatcher.sessions import Sessions
from stoker.service.dispatcher.splits import SplitBook, split_range

Pass: TypeAlias = tuple[int, int, int]
"""One pass over one source: iteration, source, source_epoch."""


class SplitDesk:
    """Grants splits to tasks.

    Attributes:
        waiting: for each pass, the tasks that want more splits and their requests, first come
            first.
    """

    def __init__(self, ledger: Ledger, sessions: Sessions) -> None:
        self.waiting: dict[Pass, dict[int, m.SplitRequest]] = {}
        self._ledger = ledger
        self._sessions = sessions

    def request(self, task: Task, request: m.SplitRequest) -> None:
        """Begins what the request gives notice of, then assigns more, or says that there is none.

        Raises:
            InvalidArgumentError: there is no such source to be handed out.
        """
        iteration = task.iteration
        if request.source not in (iteration.sources or {}):
            raise InvalidArgumentError(
                f"task {task.task_id} asks for splits of source {request.source}, which are not "
                "handed out"
            )
        key = (task.task_id, request.source, request.source_epoch)
        if request.done:
            self._ledger.commit(SplitsDone(*key))
            return
        book = iteration.book(request.source, request.source_epoch)
        if request.begin:
            begun = self._begin(task, book, request)
            refused = [split for split in request.begin if split not in begun]
            self._send(task, m.SplitGrant(*key, list(begun), refused))
        place = (iteration.iteration_id, request.source, request.source_epoch)
        if request.want > 0:
            self.waiting.setdefault(place, {})[task.task_id] = request
        self._settle(iteration, place)

    def _begin(self, task: Task, book: SplitBook, request: m.SplitRequest) -> dict[int, None]:
        """What the task may read; what it presents from before a broken session counts if free."""
        mine = task.task_id
        key = (mine, request.source, request.source_epoch)
        known = [split for split in request.begin if book.begun.get(split) == mine]
        free = [split for split in request.begin if book.is_available(split)]
        if free:
            self._ledger.commit(SplitsAssigned(*key, free))
        new = [split for split in request.begin if book.assigned.get(split) == mine]
        if new:
            self._ledger.commit(SplitsBegun(*key, new))
        return dict.fromkeys(known + new)

    def settle(self, iteration: Iteration) -> None:
        """Answers every waiting request of the iteration that can be answered now."""
        for place in list(self.waiting):
            if place[0] == iteration.iteration_id:
                self._settle(iteration, place)

    def _settle(self, iteration: Iteration, place: Pass) -> None:
        waiting = self.waiting.get(place)
        if waiting is None:
            return
        book = iteration.book(*place[1:])
        if book.all_begun:
            for task_id in waiting:
                task = iteration.tasks[task_id]
                self._send(task, m.SplitGrant(task_id, *place[1:], end=True))
            waiting.clear()
        elif book.available:
            running = sum(1 for task in iteration.tasks.values() if task.running)
            for task_id, request in list(waiting.items()):
                if chosen := book.choose(request.want, running, request.least):
                    del waiting[task_id]
                    self._assign(iteration.tasks[task_id], place, chosen)
        if not waiting:
            del self.waiting[place]

    def _assign(self, task: Task, place: Pass, chosen: list[int]) -> None:
        key = (task.task_id, *place[1:])
        self._ledger.commit(SplitsAssigned(*key, chosen))
        values = [(split, _value(task.iteration, place[1], split)) for split in chosen]
        self._send(task, m.SplitGrant(*key, splits=values))

    def forget(self, task_ids: set[int]) -> None:
        """Drops what waits for these tasks: they are gone, or will ask again."""
        for place, waiting in list(self.waiting.items()):
            for task_id in task_ids & waiting.keys():
                del waiting[task_id]
            if not waiting:
                del self.waiting[place]

    def _send(self, task: Task, grant: m.SplitGrant) -> None:
        self._sessions.send(task.worker.worker_id, grant)


def _value(iteration: Iteration, source: int, split: int) -> Any:
    assert iteration.sources is not None
    info = iteration.sources[source]
    if info.count is None:
        return iteration.values[source][split]
    return split_range(split, info.splits, info.count)
