"""Answers to workers' requests for splits; a request that cannot be answered yet waits."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities.entities import Iteration, TaskEntry
from stoker.service.dispatcher.entities.listed_values import MAX_LISTED_BATCH, MAX_LISTED_BYTES
from stoker.service.dispatcher.entities.split_ranges import to_ranges
from stoker.service.dispatcher.entities.split_tracker import (
    REMEMBERED,
    SplitTracker,
    split_range,
)
from stoker.service.dispatcher.modes.states import splits_of
from stoker.service.dispatcher.sessions.sessions import Sessions
from stoker.service.dispatcher.splits.free_splits import FreeSplits
from stoker.service.dispatcher.state import records as r

encode = msgspec.msgpack.Encoder().encode

RECLAIM_SECONDS = 1.0
"""Time for which tasks wait while another task holds splits without beginning."""

SourceEpoch: TypeAlias = tuple[int, int]
"""An epoch of a source: source, source_epoch."""


class _SplitPool:
    """An epoch of a source of an iteration.

    Attributes:
        free: its splits that are not begun.
        waiting: the tasks that wait for splits and their requests, the oldest first.
        short_since: the time since which it is short of splits, as `reclaim` saw it.
    """

    def __init__(self, free: FreeSplits) -> None:
        self.free = free
        self.waiting: dict[int, m.SplitRequest] = {}
        self.short_since: float | None = None

    @property
    def is_short(self) -> bool:
        """True if a task without splits waits for splits that are assigned to another task."""
        if self.free.available or not self.waiting:
            return False
        return not self.waiting.keys() <= set(self.free.holders)


class SplitAssigner:
    """Assign splits to tasks. Only their beginning is recorded."""

    def __init__(self, ledger: Ledger, sessions: Sessions) -> None:
        self._places: dict[int, dict[SourceEpoch, _SplitPool]] = {}
        self._ledger = ledger
        self._state = ledger.state
        self._sessions = sessions

    @property
    def waiting(self) -> list[m.SplitRequest]:
        """The requests that are not answered yet."""
        places = [place for places in self._places.values() for place in places.values()]
        return [request for place in places for request in place.waiting.values()]

    def request(self, task: TaskEntry, request: m.SplitRequest, *, draining: bool) -> None:
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
        # The input may have a number twice; its record must not.
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
        where = request.source, request.source_epoch
        if request.done:
            self._done(task, where)
            return
        place = self._place(iteration, where)
        if announced:
            begun = self._begin(task, where, announced, place.free)
            refused = [split for split in announced if split not in begun]
            self._send(task, m.SplitGrant(task.task_id, *where, list(begun), refused))
        # A worker that drains still announces splits that it was assigned before.
        if request.want > 0 and not draining:
            place.waiting[task.task_id] = request
        self._settle(iteration, where, place)

    def _place(self, iteration: Iteration, where: SourceEpoch) -> _SplitPool:
        places = self._places.setdefault(iteration.iteration_id, {})
        place = places.get(where)
        if place is None:
            place = places[where] = _SplitPool(FreeSplits(_tracker(iteration, where)))
        return place

    def _done(self, task: TaskEntry, where: SourceEpoch) -> None:
        """Remove a task from an epoch of a source, whose end it has received."""
        iteration = task.iteration
        self._ledger.commit(r.SplitsDone(task.task_id, *where))
        places = self._places.get(iteration.iteration_id, {})
        if where in places:
            places[where].free.give_back(task.task_id)
            self._settle(iteration, where, places[where])

    def _begin(
        self, task: TaskEntry, where: SourceEpoch, announced: list[int], free: FreeSplits
    ) -> dict[int, None]:
        """Return the announced splits that the task may read."""
        tracker = _tracker(task.iteration, where)
        known = [split for split in announced if tracker.has_begun(task.task_id, split)]
        new = [split for split in announced if free.may_begin(split, task.task_id)]
        if new:
            self._ledger.commit(r.SplitsBegun(task.task_id, *where, to_ranges(new)))
            free.begin(new)
        return dict.fromkeys(known + new)

    def settle(self, iteration: Iteration) -> None:
        """Answer all waiting requests of the iteration that can be answered now."""
        for where, place in list(self._places.get(iteration.iteration_id, {}).items()):
            self._settle(iteration, where, place)

    def _settle(self, iteration: Iteration, where: SourceEpoch, place: _SplitPool) -> None:
        free, waiting = place.free, place.waiting
        if free.all_begun:
            tasks = [iteration.tasks[task_id] for task_id in waiting]
            self._drop(iteration.iteration_id, where)
            self._sessions.send_all(
                (task.worker.worker_id, m.SplitGrant(task.task_id, *where, end=True))
                for task in tasks
            )
            return
        # In the order of arrival, so that no task starves.
        for task_id, request in list(waiting.items()) if free.available else []:
            if not free.available:
                break
            if iteration.tasks[task_id].readers:  # without, it may never begin them
                del waiting[task_id]
                chosen = free.choose(request.want, iteration.counts.running, request.least)
                self._assign(iteration.tasks[task_id], where, chosen, free)

    def _assign(
        self, task: TaskEntry, where: SourceEpoch, chosen: list[int], free: FreeSplits
    ) -> None:
        values = _values(task.iteration, where[0], chosen)
        free.assign([split for split, _ in values], task.task_id)
        self._send(task, m.SplitGrant(task.task_id, *where, splits=values))

    def give_back(self, task: TaskEntry) -> None:
        """Take the splits back that are assigned to a task; its requests still wait."""
        for place in self._places.get(task.iteration.iteration_id, {}).values():
            place.free.give_back(task.task_id)
        # The worker drops the splits; if it has announced some in the meantime, it is refused.
        self._sessions.send(task.worker.worker_id, m.ReturnSplits(task.task_id))

    # The holder of a split may be stuck in a user function, or read a file for an hour.
    # (docs/decisions/072)
    def reclaim(self, now: float) -> None:
        """Take splits back that a task holds for long without beginning them, if others wait.

        It may be stuck in a user function, or read a long split. What it announces meanwhile is
        refused.
        """
        for places in list(self._places.values()):
            for place in list(places.values()):
                if not place.is_short:
                    place.short_since = None
                elif place.short_since is None:
                    place.short_since = now
                elif now - place.short_since >= RECLAIM_SECONDS:
                    place.short_since = None
                    self._reclaim(place)

    def _reclaim(self, place: _SplitPool) -> None:
        waiting = self._state.tasks[next(iter(place.waiting))]
        for task_id in place.free.holders:
            self.give_back(self._state.tasks[task_id])
        self.settle(waiting.iteration)

    def forget(self, tasks: Iterable[TaskEntry]) -> None:
        """Drop the requests and the assigned splits of tasks that have ended or will ask again."""
        for task in tasks:
            for place in self._places.get(task.iteration.iteration_id, {}).values():
                place.waiting.pop(task.task_id, None)
                place.free.give_back(task.task_id)

    def forget_iteration(self, iteration: Iteration) -> None:
        """Drop the splits and the requests of an iteration whose tasks are stopped."""
        self._places.pop(iteration.iteration_id, None)

    def _drop(self, iteration_id: int, where: SourceEpoch) -> None:
        """Drop an epoch of a source whose splits are all begun."""
        places = self._places[iteration_id]
        del places[where]
        if not places:
            del self._places[iteration_id]

    def _send(self, task: TaskEntry, grant: m.SplitGrant) -> None:
        self._sessions.send(task.worker.worker_id, grant)


def _tracker(iteration: Iteration, where: SourceEpoch) -> SplitTracker:
    assert iteration.sources is not None
    source, source_epoch = where
    return splits_of(iteration.mode_state).tracker(iteration.sources[source], source_epoch)


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
        # Values are the users', such as URLs with signatures, so that their number limits no
        # message.
        size += len(encode(value))
        if values and size > MAX_LISTED_BYTES:
            break
        values.append((split, value))
    return values
