"""Iterations: begun, failed, ended by the rules of their modes, and removed."""

import copy
import logging

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import Iteration
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.handlers import Handlers
from stoker.service.dispatcher.state.jobs import leave_dataset
from stoker.service.dispatcher.state.splits import drop_pages
from stoker.service.dispatcher.state.state import State

handlers = Handlers()


@handlers.add
def _add_iteration(state: State, iteration: Iteration) -> None:
    iteration.job = state.jobs[iteration.job_name]
    iteration.places = state.places
    state.iterations[iteration.iteration_id] = iteration
    iteration.job.iterations[iteration.epoch] = iteration
    for values in iteration.values.values():
        values.restore(state.pages)
        state.page_uses.update(digest for digest, _ in values.digests)


@handlers.check
def _check_iteration_added(state: State, record: r.IterationAdded) -> bool:
    job = state.jobs[record.job]
    fits = mode_of(job.added.parameters).fits(record.mode_state)
    return fits and record.epoch not in job.iterations


@handlers.apply
def _apply_iteration_added(state: State, record: r.IterationAdded) -> None:
    _add_iteration(
        state,
        Iteration(
            iteration_id=record.iteration_id,
            job_name=record.job,
            epoch=record.epoch,
            seed=record.seed,
            mode_state=copy.deepcopy(record.mode_state),
        ),
    )


@handlers.log_after
def _log_iteration_added(state: State, log: EventLog, record: r.IterationAdded) -> None:
    log.add_of(state.iterations[record.iteration_id], "an epoch begins")


@handlers.apply
def _apply_iteration_failed(state: State, record: r.IterationFailed) -> None:
    state.iterations[record.iteration_id].error = record.error


@handlers.log_after
def _log_iteration_failed(state: State, log: EventLog, record: r.IterationFailed) -> None:
    iteration = state.iterations[record.iteration_id]
    log.add_of(iteration, f"the epoch failed: {record.error.message}", logging.ERROR)


@handlers.apply
def _apply_workers_wait(state: State, record: r.WorkersWait) -> None:
    iteration = state.iterations[record.iteration_id]
    iteration.workers_wait = iteration.counts.workers_wait = record.waiting
    decide(state, iteration)


@handlers.check
def _check_agreement_changed(state: State, record: r.AgreementChanged) -> bool:
    iteration = state.iterations[record.iteration_id]
    return mode_of(iteration.parameters).sharing.fits(iteration, record.change)


@handlers.apply
def _apply_agreement_changed(state: State, record: r.AgreementChanged) -> None:
    iteration = state.iterations[record.iteration_id]
    mode_of(iteration.parameters).sharing.apply(iteration, record.change)


@handlers.check
def _check_tasks_stopped(state: State, record: r.TasksStopped) -> bool:
    iteration = state.iterations[record.iteration_id]
    workers = state.workers
    return not iteration.stopped and all(
        task.task_id in workers[worker_id].tasks for worker_id, task in iteration.by_worker.items()
    )


@handlers.apply
def _apply_tasks_stopped(state: State, record: r.TasksStopped) -> None:
    iteration = state.iterations[record.iteration_id]
    iteration.stopped = iteration.computed = iteration.finished = True
    _drop_splits(state, iteration)
    iteration.left.clear()
    for task in iteration.by_worker.values():
        iteration.remove_readers(task)
    for worker_id, task in iteration.by_worker.items():
        del state.workers[worker_id].tasks[task.task_id]


@handlers.log_before
def _log_tasks_stopped(state: State, log: EventLog, record: r.TasksStopped) -> None:
    iteration = state.iterations[record.iteration_id]
    if not iteration.finished:
        log.add_of(iteration, "the epoch was stopped: no client reads it")


@handlers.check
def _check_iteration_removed(state: State, record: r.IterationRemoved) -> bool:
    iteration = state.iterations[record.iteration_id]
    return iteration.stopped and not iteration.clients


@handlers.apply
def _apply_iteration_removed(state: State, record: r.IterationRemoved) -> None:
    iteration = state.iterations.pop(record.iteration_id)
    for task_id in iteration.tasks:
        del state.tasks[task_id]
    del iteration.job.iterations[iteration.epoch]
    if not iteration.job.iterations:
        leave_dataset(state, state.jobs.pop(iteration.job.added.job))


@handlers.log_before
def _log_iteration_removed(state: State, log: EventLog, record: r.IterationRemoved) -> None:
    log.add_of(state.iterations[record.iteration_id], "the epoch was removed")


def decide(state: State, iteration: Iteration) -> None:
    """Update what follows from the tasks of an iteration by the rules of its mode."""
    if iteration.stopped:
        return
    mode = mode_of(iteration.parameters)
    iteration.computed = mode.is_computed(iteration, iteration.counts)
    iteration.finished = mode.is_finished(iteration)
    if iteration.finished:
        _drop_splits(state, iteration)


def _drop_splits(state: State, iteration: Iteration) -> None:
    """Drop the splits: no task will ask for any."""
    drop_pages(state, iteration)
    iteration.mode_state.finish()
