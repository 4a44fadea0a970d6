"""Bugs that the simulation must find, each planted for the time of a ``with``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec

from stoker.service.dispatcher import state
from stoker.service.dispatcher.actions import Action
from stoker.service.dispatcher.entities import Worker
from stoker.service.dispatcher.journal_gate import JournalGate
from stoker.service.dispatcher.ledger import Ledger
from stoker.service.dispatcher.records import JobCancelled, Record, SplitsBegun
from stoker.service.dispatcher.split_tracker import SplitTracker
from stoker.service.dispatcher.workers import Workers
from stoker.service.messages import SplitRequest, WorkerHello
from stoker.service.worker.split_queue import SplitQueue


def _record_not_journaled() -> Any:
    """Begun splits are applied, but never written."""
    commit = Ledger.commit

    def planted(self: Ledger, record: Record) -> None:
        commit(self, record)
        if isinstance(record, SplitsBegun):
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
    return mock.patch.object(Workers, "_repeat_drain")


def _cancel_forgotten() -> Any:
    """Clients that had no session when their job was cancelled are not refused on their next."""
    return mock.patch.dict(state._APPLY, {JobCancelled: lambda self, record: None})


def _cancelled_tasks_kept() -> Any:
    """A worker that had no session when a job was cancelled keeps the job's tasks."""
    resume = Workers._resume

    def planted(self: Workers, worker: Worker, hello: WorkerHello) -> None:
        if self._state.cancelled:
            known = [task_id for task_id in hello.tasks if task_id in worker.tasks]
            hello = msgspec.structs.replace(hello, tasks=known)
        resume(self, worker, hello)

    return mock.patch.object(Workers, "_resume", planted)


_BUGS = {
    "record-not-journaled": _record_not_journaled,
    "sent-before-durable": _sent_before_durable,
    "double-lease": _double_lease,
    "lost-acknowledgement": _lost_acknowledgement,
    "drain-not-repeated": _drain_not_repeated,
    "cancel-forgotten": _cancel_forgotten,
    "cancelled-tasks-kept": _cancelled_tasks_kept,
}

NAMES = tuple(_BUGS)
"""The names of all bugs."""


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Run the body with a bug, or without one."""
    if name is None:
        yield
    else:
        with _BUGS[name]():
            yield
