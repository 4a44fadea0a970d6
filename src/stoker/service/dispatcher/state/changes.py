"""Changes of the state by records, and entities of snapshots: each has a function of its type.

A record that was stored is applied again at every restart; a wrong record would make each restart
fail. Therefore records are checked before, and applying them never fails half-way.
"""

from typing import get_args

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import TaskEntry
from stoker.service.dispatcher.state import (
    boots,
    clients,
    datasets,
    iterations,
    jobs,
    splits,
    tasks,
    workers,
)
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.handlers import Handlers
from stoker.service.dispatcher.state.state import State, Stored


class ImpossibleRecordError(Exception):
    """A record does not fit the state."""


_HANDLERS = Handlers()
for _file in (boots, clients, datasets, iterations, jobs, splits, tasks, workers):
    _HANDLERS.update(_file.handlers)

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


def check(state: State, record: r.Record) -> None:
    """Check that a record fits the state.

    Raises:
        ImpossibleRecordError: if it does not.
    """
    kind = type(record)
    for name, table, known in _REFERENCES[kind]:
        if (getattr(record, name) in getattr(state, table)) is not known:
            raise ImpossibleRecordError(f"`{name}` is {'un' * known}known: {record!r}")
    fits = _HANDLERS.checks.get(kind)
    if fits is not None and not fits(state, record):
        raise ImpossibleRecordError(f"it does not fit the state: {record!r}")


def apply(state: State, record: r.Record) -> None:
    """Apply a record that fits the state; only this function changes a state."""
    _HANDLERS.applies[type(record)](state, record)


def apply_and_log(state: State, log: EventLog, record: r.Record) -> None:
    """Apply a record that fits the state, and add the lines about its effects to the log."""
    kind = type(record)
    if (log_before := _HANDLERS.logs_before.get(kind)) is not None:
        log_before(state, log, record)
    ending = _ending_tasks(state, record)
    iterations_of = {task.iteration_id: task.iteration for task in ending}
    unfinished = [each for each in iterations_of.values() if not each.finished]
    apply(state, record)
    if (log_after := _HANDLERS.logs_after.get(kind)) is not None:
        log_after(state, log, record)
    log.add_ends(ending, unfinished)


def _ending_tasks(state: State, record: r.Record) -> list[TaskEntry]:
    """Return the tasks that a record may end."""
    match record:
        case r.TaskEnded() | r.TaskRead() | r.TaskDelivered() | r.TaskDropped():
            return [state.tasks[record.task_id]]
        case r.WorkerLost():
            return list(state.workers[record.worker_id].tasks.values())
    return []


def add(state: State, entity: Stored) -> None:
    """Add an entity of a snapshot, and set what follows from the ids and states of entities.

    Raises:
        KeyError: if the entity refers to another one that was not added before.
    """
    _HANDLERS.adds[type(entity)](state, entity)
