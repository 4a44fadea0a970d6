"""Tasks: their readers, their ends and their losses."""

import logging
from typing import Any

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import TaskEntry
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.handlers import Handlers
from stoker.service.dispatcher.state.iterations import decide
from stoker.service.dispatcher.state.state import State
from stoker.service.plurals import plural

handlers = Handlers()


@handlers.add
def _add_task(state: State, task: TaskEntry) -> None:
    worker = state.workers.get(task.worker_id)
    task.worker = worker.added if worker else state.lost_workers[task.worker_id]
    task.iteration = iteration = state.iterations[task.iteration_id]
    state.tasks[task.task_id] = task
    iteration.add_task(task)
    if worker is not None and not task.lost and not iteration.stopped:
        worker.tasks[task.task_id] = task


@handlers.check
def _check_task_added(state: State, record: r.TaskAdded) -> bool:
    iteration = state.iterations[record.iteration_id]
    free = not iteration.stopped and record.worker_id not in iteration.by_worker
    return free and all(client_id in iteration.clients for client_id in record.readers)


@handlers.apply
def _apply_task_added(state: State, record: r.TaskAdded) -> None:
    iteration = state.iterations[record.iteration_id]
    task = TaskEntry(
        task_id=record.task_id,
        worker_id=record.worker_id,
        iteration_id=record.iteration_id,
        seed=record.seed,
        key=record.key,
        poisoned_known=len(iteration.poison.poisoned),
    )
    _add_task(state, task)
    for client_id in record.readers:
        iteration.add_reader(task, state.clients[client_id], client_id)
    decide(state, iteration)


@handlers.check
def _check_task_assigned(state: State, record: r.TaskAssigned) -> bool:
    task = state.tasks[record.task_id]
    reads = record.client_id in task.readers or record.client_id in task.leaving
    return record.client_id in task.iteration.clients and not reads and not task.over


@handlers.apply
def _apply_task_assigned(state: State, record: r.TaskAssigned) -> None:
    task, client = state.tasks[record.task_id], state.clients[record.client_id]
    task.iteration.add_reader(task, client, record.reader_id)


@handlers.check
def _check_task_revoked(state: State, record: r.TaskRevoked) -> bool:
    return record.client_id in state.tasks[record.task_id].readers


@handlers.apply
def _apply_task_revoked(state: State, record: r.TaskRevoked) -> None:
    task = state.tasks[record.task_id]
    task.iteration.revoke_reader(task, record.client_id)


@handlers.check
def _check_task_left(state: State, record: r.TaskLeft) -> bool:
    task = state.tasks[record.task_id]
    return record.client_id in task.readers or record.client_id in task.leaving


@handlers.apply
def _apply_task_left(state: State, record: r.TaskLeft) -> None:
    task, client = state.tasks[record.task_id], state.clients[record.client_id]
    task.iteration.remove_reader(task, client, record.consumed)
    client.left_tasks[record.task_id] = None


@handlers.check
def _check_task_ended(state: State, record: r.TaskEnded) -> bool:
    return not state.tasks[record.task_id].exhausted


@handlers.apply
def _apply_task_ended(state: State, record: r.TaskEnded) -> None:
    task = state.tasks[record.task_id]
    _change_task(state, task, exhausted=True)
    mode_of(task.iteration.parameters).end_task(task)


@handlers.check
def _check_task_read(state: State, record: r.TaskRead) -> bool:
    return not state.tasks[record.task_id].iteration.stopped


@handlers.apply
def _apply_task_read(state: State, record: r.TaskRead) -> None:
    _change_task(state, state.tasks[record.task_id], read=True)


@handlers.check
def _check_task_delivered(state: State, record: r.TaskDelivered) -> bool:
    return not state.tasks[record.task_id].delivered


@handlers.apply
def _apply_task_delivered(state: State, record: r.TaskDelivered) -> None:
    task = state.tasks[record.task_id]
    _change_task(state, task, delivered=True)
    mode_of(task.iteration.parameters).end_task(task)


@handlers.check
def _check_task_dropped(state: State, record: r.TaskDropped) -> bool:
    worker = state.workers.get(state.tasks[record.task_id].worker.worker_id)
    return bool(record.reason) and worker is not None and record.task_id in worker.tasks


@handlers.apply
def _apply_task_dropped(state: State, record: r.TaskDropped) -> None:
    task = state.tasks[record.task_id]
    del state.workers[task.worker.worker_id].tasks[record.task_id]
    lose_task(state, task, record.reason)


@handlers.check
def _check_task_died(state: State, record: r.TaskDied) -> bool:
    has_worker = state.tasks[record.task_id].worker.worker_id in state.workers
    valid = bool(record.calls) and all(0 <= x.first < x.stop for x in record.calls)
    return has_worker and valid


@handlers.apply
def _apply_task_died(state: State, record: r.TaskDied) -> None:
    task = state.tasks[record.task_id]
    search, known = task.iteration.poison, task.poisoned_known
    search.add(task.seed, known, record.calls, record.alone, record.how)


@handlers.log_after
def _log_task_died(state: State, log: EventLog, record: r.TaskDied) -> None:
    task = state.tasks[record.task_id]
    text = f"user functions ran when worker {task.worker.address} died: {record.how}"
    log.add_of(
        task.iteration, text, logging.WARNING, worker=task.worker.address, task=record.task_id
    )


@handlers.apply
def _apply_elements_dropped(state: State, record: r.ElementsDropped) -> None:
    task = state.tasks[record.task_id]
    task.dropped = record.elements
    task.iteration.damaged[record.task_id] = task


@handlers.log_after
def _log_elements_dropped(state: State, log: EventLog, record: r.ElementsDropped) -> None:
    task = state.tasks[record.task_id]
    lost = plural(record.elements, "element is lost", "elements are lost")
    log.add_of_task(task, f"{lost}, sent to clients that died", logging.WARNING)


def lose_task(state: State, task: TaskEntry, reason: str, elements: int | None = None) -> None:
    """Record the loss of a task; `elements` are the elements lost with the task, if known."""
    elements = 0 if task.delivered else elements
    begun = task.iteration.mode_state.begun_by(task.task_id) if elements is None else 0
    _change_task(state, task, lost=reason, splits_lost=begun, elements_lost=elements)
    task.iteration.damaged[task.task_id] = task
    del task.iteration.by_worker[task.worker.worker_id]
    mode_of(task.iteration.parameters).end_task(task)


def _change_task(state: State, task: TaskEntry, **changes: Any) -> None:
    """Change attributes of a task, and let its mode decide what they mean."""
    iteration = task.iteration
    iteration.count(task, -1)
    for name, value in changes.items():
        setattr(task, name, value)
    iteration.count(task)
    if task.over:
        iteration.remove_readers(task)
    decide(state, iteration)
