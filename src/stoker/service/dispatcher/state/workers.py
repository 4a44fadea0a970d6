"""Workers: registered, draining, and lost with their tasks."""

import logging

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import WorkerEntry
from stoker.service.dispatcher.entities.placement import process_of
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.handlers import Handlers
from stoker.service.dispatcher.state.state import State
from stoker.service.dispatcher.state.tasks import lose_task
from stoker.service.plurals import plural

handlers = Handlers()


STOPPED = "it was stopped"
"""Reason of the loss of a worker that was stopped as planned."""


@handlers.add
def _add_worker(state: State, worker: WorkerEntry) -> None:
    added = worker.added
    state.workers[added.worker_id] = worker
    state.places.add(added)
    state.addresses[added.address] = added.worker_id
    if process := process_of(added):
        state.local_workers.setdefault(process, {})[added.worker_id] = worker


@handlers.add
def _add_lost_worker(state: State, added: r.WorkerAdded) -> None:
    state.lost_workers[added.worker_id] = added


@handlers.check
def _check_worker_added(state: State, record: r.WorkerAdded) -> bool:
    is_free = record.place is None or record.place not in state.places.workers
    return record.address not in state.addresses and is_free


@handlers.apply
def _apply_worker_added(state: State, record: r.WorkerAdded) -> None:
    _add_worker(state, WorkerEntry(record))


@handlers.log_after
def _log_worker_added(state: State, log: EventLog, record: r.WorkerAdded) -> None:
    tags = f" with tags {', '.join(record.tags)}" if record.tags else ""
    text = f"a worker joined{tags}; there are {len(state.workers)}"
    log.add(logging.INFO, text, worker=record.address)


@handlers.apply
def _apply_worker_draining(state: State, record: r.WorkerDraining) -> None:
    state.workers[record.worker_id].draining = True


@handlers.log_after
def _log_worker_draining(state: State, log: EventLog, record: r.WorkerDraining) -> None:
    worker = state.workers[record.worker_id]
    log.add(logging.INFO, "a worker is draining", worker=worker.added.address)


@handlers.check
def _check_worker_lost(_state: State, record: r.WorkerLost) -> bool:
    return bool(record.reason)  # a task without one would not count as lost


@handlers.apply
def _apply_worker_lost(state: State, record: r.WorkerLost) -> None:
    worker = state.workers.pop(record.worker_id)
    del state.addresses[worker.added.address]
    state.places.remove(worker.added)
    if process := process_of(worker.added):
        state.local_workers[process].pop(record.worker_id)
        if not state.local_workers[process]:
            del state.local_workers[process]
    for task in worker.tasks.values():
        lose_task(state, task, record.reason, record.undelivered.get(task.task_id))


@handlers.log_before
def _log_worker_lost(state: State, log: EventLog, record: r.WorkerLost) -> None:
    worker, reason = state.workers[record.worker_id], record.reason
    planned = reason == STOPPED
    number = len(worker.tasks)
    ends = f"; {plural(number, 'task ends', 'tasks end')}" if number else ""
    line = log.add(
        logging.INFO if planned else logging.WARNING,
        f"worker {worker.added.address} {'left' if planned else 'was lost'}: {reason}{ends}",
        worker=worker.added.address,
    )
    if planned:
        log.remember(line)
