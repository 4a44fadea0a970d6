"""Checks of records before they are applied, so that `State.apply` never fails half-way.

A record that was stored is applied again at every restart; a wrong one would make each fail.
"""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.state.state import State


class ImpossibleRecordError(Exception):
    """A record does not fit the state."""


_TABLES = {
    "dataset_id": "datasets",
    "job": "jobs",
    "iteration_id": "iterations",
    "worker_id": "workers",
    "task_id": "tasks",
    "client_id": "clients",
}
"""Fields by which records name entities, and the attributes of the state that hold those."""

_NEW = {
    r.JobAdded: "job",
    r.IterationAdded: "iteration_id",
    r.WorkerAdded: "worker_id",
    r.TaskAdded: "task_id",
    r.ClientAdded: "client_id",
}
"""Records that add an entity, and the field with its id."""

_REFERENCES: dict[type, list[tuple[str, str, bool]]] = {
    kind: [
        (name, _TABLES[name], _NEW.get(kind) != name)
        for name in kind.__struct_fields__
        if name in _TABLES and kind is not r.DatasetAdded
    ]
    for kind in get_args(r.Record)
}
"""For each record its fields that name an entity, the table, and whether it must be there."""

_R = TypeVar("_R")

_CHECKS: dict[type, Callable[[State, Any], bool]] = {}


def check(state: State, record: r.Record) -> None:
    """Check that a record fits the state.

    Raises:
        ImpossibleRecordError: if it does not.
    """
    kind = type(record)
    for name, table, known in _REFERENCES[kind]:
        if (getattr(record, name) in getattr(state, table)) is not known:
            raise ImpossibleRecordError(f"`{name}` is {'un' * known}known: {record!r}")
    fits = _CHECKS.get(kind)
    if fits is not None and not fits(state, record):
        raise ImpossibleRecordError(f"it does not fit the state: {record!r}")


def _fits(
    kind: type[_R],
) -> Callable[[Callable[[State, _R], bool]], Callable[[State, _R], bool]]:
    """Register the check of records of a type, whose references were checked before."""

    def register(function: Callable[[State, _R], bool]) -> Callable[[State, _R], bool]:
        _CHECKS[kind] = function
        return function

    return register


@_fits(r.Booted)
def _check_booted(state: State, record: r.Booted) -> bool:
    same = state.history.journal_id in ("", record.journal_id)
    return (
        same
        and bool(record.journal_id)
        and state.history.ids_end <= record.first_id < record.ids_end
    )


@_fits(r.IdsReserved)
def _check_ids_reserved(state: State, record: r.IdsReserved) -> bool:
    return record.ids_end > state.history.ids_end


@_fits(r.DatasetAdded)
def _check_dataset_added(state: State, record: r.DatasetAdded) -> bool:
    existing = state.datasets.get(record.dataset_id)
    # A dropped tree comes again; and an explicit id may be the digest of another dataset.
    return existing is None or not existing.tree or existing.digest != record.digest


@_fits(r.DatasetRemoved)
def _check_dataset_removed(state: State, record: r.DatasetRemoved) -> bool:
    return record.dataset_id not in state.jobs_of


@_fits(r.WorkerAdded)
def _check_worker_added(state: State, record: r.WorkerAdded) -> bool:
    is_free = record.place is None or record.place not in state.places.workers
    return record.address not in state.addresses and is_free


@_fits(r.IterationAdded)
def _check_iteration_added(state: State, record: r.IterationAdded) -> bool:
    job = state.jobs[record.job]
    fits = mode_of(job.added.parameters).fits(record.mode_state)
    return fits and record.epoch not in job.iterations


@_fits(r.PageStored)
def _check_page_stored(state: State, record: r.PageStored) -> bool:
    return record.digest not in state.pages


@_fits(r.PageListed)
def _check_page_listed(state: State, record: r.PageListed) -> bool:
    return record.digest in state.pages and record.count > 0


@_fits(r.SplitsKnown)
def _check_splits_known(state: State, record: r.SplitsKnown) -> bool:
    return state.iterations[record.iteration_id].sources is None


@_fits(r.TaskDied)
def _check_task_died(state: State, record: r.TaskDied) -> bool:
    has_worker = state.tasks[record.task_id].worker.worker_id in state.workers
    valid = bool(record.calls) and all(0 <= x.first < x.stop for x in record.calls)
    return has_worker and valid


@_fits(r.TaskAdded)
def _check_task_added(state: State, record: r.TaskAdded) -> bool:
    iteration = state.iterations[record.iteration_id]
    free = not iteration.stopped and record.worker_id not in iteration.by_worker
    return free and all(client_id in iteration.clients for client_id in record.readers)


@_fits(r.TaskAssigned)
def _check_task_assigned(state: State, record: r.TaskAssigned) -> bool:
    task = state.tasks[record.task_id]
    reads = record.client_id in task.readers or record.client_id in task.leaving
    return record.client_id in task.iteration.clients and not reads and not task.over


@_fits(r.TaskRevoked)
def _check_task_revoked(state: State, record: r.TaskRevoked) -> bool:
    return record.client_id in state.tasks[record.task_id].readers


@_fits(r.TaskLeft)
def _check_task_left(state: State, record: r.TaskLeft) -> bool:
    task = state.tasks[record.task_id]
    return record.client_id in task.readers or record.client_id in task.leaving


@_fits(r.TaskEnded)
def _check_task_ended(state: State, record: r.TaskEnded) -> bool:
    return not state.tasks[record.task_id].exhausted


@_fits(r.TaskRead)
def _check_task_read(state: State, record: r.TaskRead) -> bool:
    return not state.tasks[record.task_id].iteration.stopped


@_fits(r.TaskDelivered)
def _check_task_delivered(state: State, record: r.TaskDelivered) -> bool:
    return not state.tasks[record.task_id].delivered


@_fits(r.TaskDropped)
def _check_task_dropped(state: State, record: r.TaskDropped) -> bool:
    worker = state.workers.get(state.tasks[record.task_id].worker.worker_id)
    return worker is not None and record.task_id in worker.tasks


@_fits(r.SplitsBegun)
def _check_splits_begun(state: State, record: r.SplitsBegun) -> bool:
    iteration = state.tasks[record.task_id].iteration
    if record.source not in (iteration.sources or {}):
        return False
    tracker = iteration.tracker(record.source, record.source_epoch)
    before = 0
    for start, stop in record.ranges:  # in order, so that they do not overlap
        if not before <= start < stop <= tracker.total or not tracker.begun.is_disjoint(
            start, stop
        ):
            return False
        before = stop
    return bool(record.ranges)


@_fits(r.SplitsDone)
def _check_splits_done(state: State, record: r.SplitsDone) -> bool:
    return record.source in (state.tasks[record.task_id].iteration.sources or {})


@_fits(r.ClientAdded)
def _check_client_added(state: State, record: r.ClientAdded) -> bool:
    return state.iterations[record.iteration_id].error is None


@_fits(r.RoundsChanged)
def _check_rounds_changed(state: State, record: r.RoundsChanged) -> bool:
    iteration = state.iterations[record.iteration_id]
    return mode_of(iteration.parameters).sharing.fits(iteration, record)


@_fits(r.TasksStopped)
def _check_tasks_stopped(state: State, record: r.TasksStopped) -> bool:
    iteration = state.iterations[record.iteration_id]
    workers = state.workers
    return not iteration.stopped and all(
        task.task_id in workers[worker_id].tasks for worker_id, task in iteration.by_worker.items()
    )


@_fits(r.IterationRemoved)
def _check_iteration_removed(state: State, record: r.IterationRemoved) -> bool:
    iteration = state.iterations[record.iteration_id]
    return iteration.stopped and not iteration.clients
