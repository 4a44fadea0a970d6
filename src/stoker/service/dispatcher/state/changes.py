"""Changes of the state by records, each with its check, its change and its lines in the log.

A record that was stored is applied again at every restart; a wrong record would make each restart
fail. Therefore records are checked before, and applying them never fails half-way.
"""

from typing import get_args

from stoker.service.dispatcher.entities.entities import TaskEntry
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State

_TABLES = {
    "dataset_id": "datasets",
    "job": "jobs",
    "iteration_id": "iterations",
    "worker_id": "workers",
    "task_id": "tasks",
    "client_id": "clients",
}
"""Fields by which records name entities, and the attributes of the state that hold those."""

_REFERENCES: dict[type, list[tuple[str, str, bool]]] = {
    kind: [
        (name, _TABLES[name], kind.adds != name)
        for name in kind.__struct_fields__
        # A dataset whose tree was dropped is added again.
        if name in _TABLES and kind is not r.DatasetAdded
    ]
    for kind in get_args(r.AnyRecord)
}
"""For each record its fields that name an entity, the table, and whether it must be there."""


class ImpossibleRecordError(Exception):
    """A record does not fit the state."""


def check(state: State, record: Record) -> None:
    """Check that a record fits the state.

    Raises:
        ImpossibleRecordError: if it does not.
    """
    for name, table, known in _REFERENCES[type(record)]:
        if (getattr(record, name) in getattr(state, table)) is not known:
            raise ImpossibleRecordError(f"`{name}` is {'un' * known}known: {record!r}")
    if not record.fits(state):
        raise ImpossibleRecordError(f"it does not fit the state: {record!r}")


def apply_and_log(state: State, log: EventLog, record: Record) -> None:
    """Apply a record that fits the state, and add the lines about its effects to the log."""
    record.log_before(state, log)
    ending = _ending_tasks(state, record)
    iterations_of = {task.iteration_id: task.iteration for task in ending}
    # Before the change: a record may end an iteration through its tasks.
    unfinished = [each for each in iterations_of.values() if not each.finished]
    record.apply(state)
    record.log_after(state, log)
    log.add_ends(ending, unfinished)


def _ending_tasks(state: State, record: Record) -> list[TaskEntry]:
    """Return the tasks that a record may end."""
    match record:
        case r.TaskEnded() | r.TaskEndReceived() | r.TaskDelivered() | r.TaskDropped():
            return [state.tasks[record.task_id]]
        case r.WorkerLost():
            return list(state.workers[record.worker_id].tasks.values())
    return []
