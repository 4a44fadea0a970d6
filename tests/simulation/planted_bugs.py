"""Bugs that the simulation must find, each planted for the time of a ``with``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec

from stoker.service.client.task_cursor import TaskCursor
from stoker.service.dispatcher import logic
from stoker.service.dispatcher.actions import Action
from stoker.service.dispatcher.commits.journal_gate import JournalGate
from stoker.service.dispatcher.commits.journal_position import JournalPositions
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities.entities import WorkerEntry
from stoker.service.dispatcher.entities.split_tracker import SplitTracker
from stoker.service.dispatcher.modes.coordinated.rounds import RoundsCoordinator
from stoker.service.dispatcher.peers.workers import Workers
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.record import Record
from stoker.service.messages import Drain, SplitRequest, WorkerHello
from stoker.service.worker.tasks.split_queue import SplitQueue
from tests.simulation.positions import planted_bugs as positions


def _record_not_journaled() -> Any:
    """Begun splits are applied, but never written."""
    commit = Ledger.commit

    def planted(self: Ledger, record: Record) -> None:
        commit(self, record)
        if isinstance(record, r.SplitsBegun):
            self._unit.pop()

    return mock.patch.object(Ledger, "commit", planted)


def _sent_before_durable() -> Any:
    """Actions are executed while their records are being written."""

    def planted(self: JournalGate, unit: bytes, actions: list[Action]) -> None:
        self._store(unit)
        for action in actions:
            self._execute(action)

    return mock.patch.object(JournalGate, "pass_on", planted)


def _double_lease() -> Any:
    """A task that announces a split is told to read it, though another task has begun it."""

    def planted(self: SplitTracker, task_id: int, split: int) -> bool:
        return split in self.begun

    return mock.patch.object(SplitTracker, "has_begun", planted)


def _lost_acknowledgement() -> Any:
    """On a new session a worker does not repeat the announcements that have no answer."""
    reattach = SplitQueue.reattach

    def planted(self: SplitQueue) -> SplitRequest | None:
        request = reattach(self)
        return request and msgspec.structs.replace(request, begin=[])

    return mock.patch.object(SplitQueue, "reattach", planted)


def _drain_not_repeated() -> Any:
    """A worker that had no session when it was asked to drain is not asked on its next one."""
    hello = Workers.hello

    def planted(self: Workers, *arguments: Any) -> None:
        send = self._sessions.send

        def send_others(worker_id: int, message: Any) -> None:
            if not isinstance(message, Drain):
                send(worker_id, message)

        with mock.patch.object(self._sessions, "send", send_others):
            hello(self, *arguments)

    return mock.patch.object(Workers, "hello", planted)


def _cancel_forgotten() -> Any:
    """Clients that had no session when their job was cancelled are not refused on their next."""
    return mock.patch.object(r.JobCancelled, "apply")


def _cancelled_tasks_kept() -> Any:
    """A worker that had no session when a job was cancelled keeps the job's tasks."""
    resume = Workers._resume

    def planted(self: Workers, worker: WorkerEntry, hello: WorkerHello) -> None:
        if self._state.history.cancelled:
            known = [task_id for task_id in hello.tasks if task_id in worker.tasks]
            hello = msgspec.structs.replace(hello, tasks=known)
        resume(self, worker, hello)

    return mock.patch.object(Workers, "_resume", planted)


def _drain_not_agreed() -> Any:
    """The consumers of a coordinated read do not leave the tasks of a worker that drains."""
    return mock.patch.object(RoundsCoordinator, "leaving")


def _give_back_not_repeated() -> Any:
    """A consumer that gives a task back to a worker that drains does not connect to it again."""

    def planted(self: TaskCursor) -> bool:
        return self.connection is None and not (self.lost or self.leaving)

    return mock.patch.object(TaskCursor, "waits", property(planted))


def _position_not_checked() -> Any:
    """A dispatcher serves a journal that has lost its end, though peers know more."""
    return mock.patch.object(JournalPositions, "check")


def _splits_before_return() -> Any:
    """A restarted dispatcher gives splits before the peers that it had could return."""
    return mock.patch.object(logic, "RETURN_SECONDS", 0.0)


_BUGS = {
    "record-not-journaled": _record_not_journaled,
    "sent-before-durable": _sent_before_durable,
    "double-lease": _double_lease,
    "lost-acknowledgement": _lost_acknowledgement,
    "drain-not-repeated": _drain_not_repeated,
    "cancel-forgotten": _cancel_forgotten,
    "cancelled-tasks-kept": _cancelled_tasks_kept,
    "drain-not-agreed": _drain_not_agreed,
    "give-back-not-repeated": _give_back_not_repeated,
    "position-not-checked": _position_not_checked,
    "splits-before-return": _splits_before_return,
}

OF_POSITIONS = tuple(positions.BUGS)
"""Those that only deterministic epochs show (``--positions``)."""

_BUGS |= positions.BUGS
NAMES = tuple(_BUGS)
"""The names of all bugs."""

OF_ROUNDS = ("drain-not-agreed", "give-back-not-repeated")
"""Those that only coordinated reads show (``--rounds``)."""


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Run the body with a bug, or without one."""
    if name is None:
        yield
    else:
        with _BUGS[name]():
            yield
