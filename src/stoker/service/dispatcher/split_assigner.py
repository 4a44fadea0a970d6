"""Answers to workers' requests for splits; a request that cannot be answered yet waits."""

from typing import Any, TypeAlias

import msgspec

from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.dispatcher.entities import Iteration, Task
from stoker.service.dispatcher.ledger import Ledger
from stoker.service.dispatcher.records import SplitsAssigned, SplitsBegun, SplitsDone
from stoker.service.dispatcher.sessions import Sessions
from stoker.service.dispatcher.split_tracker import REMEMBERED, SplitTracker, split_range

_encode = msgspec.msgpack.Encoder().encode

MAX_LISTED_BATCH = 1024
MAX_LISTED_BYTES = 1 << 20
"""Most listed splits, and bytes of their values, assigned in one message (or one split)."""

SourceEpoch: TypeAlias = tuple[int, int, int]
"""One epoch of one source: iteration, source, source_epoch."""


class SplitAssigner:
    """Assign splits to tasks.

    Attributes:
        waiting: for each epoch of a source, the tasks that wait for splits and their requests,
            the oldest first.
    """

    def __init__(self, ledger: Ledger, sessions: Sessions) -> None:
        self.waiting: dict[SourceEpoch, dict[int, m.SplitRequest]] = {}
        self._ledger = ledger
        self._sessions = sessions

    def request(self, task: Task, request: m.SplitRequest, *, draining: bool) -> None:
        """Begin the splits that the request announces, then assign more or report the end.

        Args:
            task: the task that asks.
            request: its request.
            draining: its worker gets no more splits.

        Raises:
            InvalidArgumentError: if the splits of the source are not assigned, or a number is not
                possible.
        """
        iteration = task.iteration
        announced = list(dict.fromkeys(request.begin))
        if min(request.source_epoch, request.want, request.least) < 0:
            raise InvalidArgumentError(
                "`source_epoch`, `want` and `least` of a SplitRequest must not be negative, got "
                f"{request.source_epoch}, {request.want} and {request.least}"
            )
        if len(announced) > REMEMBERED:
            raise InvalidArgumentError(
                f"a SplitRequest may announce {REMEMBERED} splits, got {len(announced)}"
            )
        if request.source not in (iteration.sources or {}):
            raise InvalidArgumentError(
                f"task {task.task_id} asks for splits of source {request.source}, which are not "
                "assigned in this iteration"
            )
        key = (task.task_id, request.source, request.source_epoch)
        if request.done:
            self._ledger.commit(SplitsDone(*key))
            return
        tracker = iteration.tracker(request.source, request.source_epoch)
        if announced:
            begun = self._begin(tracker, key, announced)
            refused = [split for split in announced if split not in begun]
            self._send(task, m.SplitGrant(*key, list(begun), refused))
        place = (iteration.iteration_id, request.source, request.source_epoch)
        if request.want > 0 and not draining:
            self.waiting.setdefault(place, {})[task.task_id] = request
        self._settle(iteration, place)

    def _begin(
        self, tracker: SplitTracker, key: tuple[int, int, int], announced: list[int]
    ) -> dict[int, None]:
        """Return the announced splits that the task may read.

        After a broken session a task may announce splits that were taken back: free ones count.
        """
        mine = key[0]
        known = [split for split in announced if tracker.begun.get(split) == mine]
        free = [split for split in announced if tracker.is_available(split)]
        if free:
            self._ledger.commit(SplitsAssigned(*key, free))
        new = [split for split in announced if tracker.assigned.get(split) == mine]
        if new:
            self._ledger.commit(SplitsBegun(*key, new))
        return dict.fromkeys(known + new)

    def settle(self, iteration: Iteration) -> None:
        """Answer all waiting requests of the iteration that can be answered now."""
        for place in list(self.waiting):
            if place[0] == iteration.iteration_id:
                self._settle(iteration, place)

    def _settle(self, iteration: Iteration, place: SourceEpoch) -> None:
        waiting = self.waiting.get(place)
        if waiting is None:
            return
        tracker = iteration.tracker(*place[1:])
        if tracker.all_begun:
            tasks = [iteration.tasks[task_id] for task_id in waiting]
            waiting.clear()
            self._sessions.send_all(
                (task.worker.worker_id, m.SplitGrant(task.task_id, *place[1:], end=True))
                for task in tasks
            )
        # In the order of arrival, so that no task starves.
        for task_id, request in list(waiting.items()) if tracker.available else []:
            if not tracker.available:
                break
            if iteration.tasks[task_id].readers:  # without, it may never begin them
                del waiting[task_id]
                chosen = tracker.choose(request.want, iteration.counts.running, request.least)
                self._assign(iteration.tasks[task_id], place, chosen)
        if not waiting:
            del self.waiting[place]

    def _assign(self, task: Task, place: SourceEpoch, chosen: list[int]) -> None:
        key = (task.task_id, *place[1:])
        values = _values(task.iteration, place[1], chosen)
        self._ledger.commit(SplitsAssigned(*key, [split for split, _ in values]))
        self._send(task, m.SplitGrant(*key, splits=values))

    def forget(self, task_ids: set[int]) -> None:
        """Drop the waiting requests of tasks that have ended or will ask again."""
        for place, waiting in list(self.waiting.items()):
            for task_id in task_ids & waiting.keys():
                del waiting[task_id]
            if not waiting:
                del self.waiting[place]

    def _send(self, task: Task, grant: m.SplitGrant) -> None:
        self._sessions.send(task.worker.worker_id, grant)


def _values(iteration: Iteration, source: int, chosen: list[int]) -> list[tuple[int, Any]]:
    """Return the chosen splits with their values; of listed ones, as many as one message takes."""
    assert iteration.sources is not None
    info = iteration.sources[source]
    if info.count is not None:
        return [(split, split_range(split, info.splits, info.count)) for split in chosen]
    values: list[tuple[int, Any]] = []
    size = 0
    for split in chosen[:MAX_LISTED_BATCH]:
        value = iteration.values[source][split]
        size += len(_encode(value))
        if values and size > MAX_LISTED_BYTES:
            break
        values.append((split, value))
    return values
