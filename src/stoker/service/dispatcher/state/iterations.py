"""Iterations: begun, failed, ended by the rules of their modes, and removed."""

import copy
import logging

import msgspec

from stoker.errors import ErrorRecord
from stoker.service.dispatcher.entities.entities import Iteration
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.modes.state import AnyAgreementChange, ModeState
from stoker.service.dispatcher.modes.states import AnyModeState
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.jobs import leave_dataset
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.splits import drop_pages
from stoker.service.dispatcher.state.state import State


def add_iteration(state: State, iteration: Iteration) -> None:
    """Add an iteration to the tables of the state and to its job."""
    iteration.job = state.jobs[iteration.job_name]
    iteration.places = state.places
    state.iterations[iteration.iteration_id] = iteration
    iteration.job.iterations[iteration.epoch] = iteration
    for values in iteration.values.values():
        values.restore(state.pages)
        state.page_uses.update(digest for digest, _ in values.digests)


def decide(state: State, iteration: Iteration) -> None:
    """Update what follows from the tasks of an iteration by the rules of its mode."""
    if iteration.stopped:
        return
    mode = mode_of(iteration.parameters)
    iteration.computed = mode.is_computed(iteration, iteration.counts)
    iteration.finished = mode.is_finished(iteration)
    # Not only when the iteration is removed: a list of files may have a gigabyte.
    if iteration.finished:
        _drop_splits(state, iteration)


def _drop_iteration(state: State, iteration: Iteration) -> None:
    """Remove an iteration and its tasks from the tables of the state and from its job."""
    del state.iterations[iteration.iteration_id]
    for task_id in iteration.tasks:
        del state.tasks[task_id]
    del iteration.job.iterations[iteration.epoch]


def _drop_splits(state: State, iteration: Iteration) -> None:
    """Drop the splits: no task will ask for any."""
    drop_pages(state, iteration)
    iteration.mode_state.finish()


class IterationAdded(Record, frozen=True):
    """A client asked for an epoch of a job that did not exist; `mode_state` is the first one.

    An iteration of that epoch which was stopped and has no client is replaced.
    """

    adds = "iteration_id"

    iteration_id: int
    job: str
    epoch: tuple[int, ...]
    seed: int
    mode_state: AnyModeState = msgspec.field(default_factory=ModeState)

    def fits(self, state: State) -> bool:
        """Return whether the epoch is new, and the state that of the mode of the job."""
        job = state.jobs[self.job]
        fits = mode_of(job.added.parameters).fits(self.mode_state)
        old = job.iterations.get(self.epoch)
        return fits and (old is None or (old.stopped and not old.clients))

    def apply(self, state: State) -> None:
        """Add the iteration."""
        iteration = Iteration(
            iteration_id=self.iteration_id,
            job_name=self.job,
            epoch=self.epoch,
            seed=self.seed,
            # Later records change the state of the mode, and never the record.
            mode_state=copy.deepcopy(self.mode_state),
        )
        old = state.jobs[self.job].iterations.get(self.epoch)
        if old is not None:
            # A poisoned call is known by the digest of its element too, so that it is the same in a
            # new iteration of the epoch.
            iteration.poison = old.poison
            _drop_iteration(state, old)
        add_iteration(state, iteration)

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the begin."""
        log.add_of(state.iterations[self.iteration_id], "an epoch begins")


class IterationFailed(Record, frozen=True):
    """An iteration cannot run."""

    iteration_id: int
    error: ErrorRecord

    def apply(self, state: State) -> None:
        """Note the error."""
        state.iterations[self.iteration_id].error = self.error

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the error."""
        text = f"the epoch failed: {self.error.message}"
        log.add_of(state.iterations[self.iteration_id], text, logging.ERROR)


class WorkersWait(Record, frozen=True):
    """There are workers that get a task of the iteration when clients can read more, or none."""

    iteration_id: int
    waiting: bool

    def apply(self, state: State) -> None:
        """Note whether workers wait."""
        iteration = state.iterations[self.iteration_id]
        iteration.workers_wait = iteration.counts.workers_wait = self.waiting
        decide(state, iteration)


class AgreementChanged(Record, frozen=True):
    """The agreement of the clients of an iteration changes."""

    iteration_id: int
    change: AnyAgreementChange

    def fits(self, state: State) -> bool:
        """Return whether the change follows the present agreement."""
        iteration = state.iterations[self.iteration_id]
        return mode_of(iteration.parameters).sharing.fits(iteration, self.change)

    def apply(self, state: State) -> None:
        """Change the agreement."""
        iteration = state.iterations[self.iteration_id]
        mode_of(iteration.parameters).sharing.apply(iteration, self.change)


class TasksStopped(Record, frozen=True):
    """The tasks of an iteration were stopped."""

    iteration_id: int

    def fits(self, state: State) -> bool:
        """Return whether they were not stopped before."""
        iteration = state.iterations[self.iteration_id]
        workers, tasks = state.workers, iteration.by_worker.items()
        return not iteration.stopped and all(x.task_id in workers[y].tasks for y, x in tasks)

    def apply(self, state: State) -> None:
        """Remove the tasks from their workers and clients."""
        iteration = state.iterations[self.iteration_id]
        iteration.stopped = iteration.computed = iteration.finished = True
        _drop_splits(state, iteration)
        # Only workers that still have a task ask for the positions of clients.
        iteration.left.clear()
        for worker_id, task in iteration.by_worker.items():
            iteration.remove_readers(task)
            del state.workers[worker_id].tasks[task.task_id]

    def log_before(self, state: State, log: EventLog) -> None:
        """Log the end of an iteration that had not ended."""
        iteration = state.iterations[self.iteration_id]
        if not iteration.finished:
            log.add_of(iteration, "the epoch was stopped: no client reads it")


class IterationRemoved(Record, frozen=True):
    """An iteration was removed."""

    iteration_id: int

    def fits(self, state: State) -> bool:
        """Return whether nothing of the iteration is left."""
        iteration = state.iterations[self.iteration_id]
        return iteration.stopped and not iteration.clients

    def apply(self, state: State) -> None:
        """Remove the iteration, and its job with the last one."""
        iteration = state.iterations[self.iteration_id]
        _drop_iteration(state, iteration)
        if not iteration.job.iterations:
            leave_dataset(state, state.jobs.pop(iteration.job.added.job))

    def log_before(self, state: State, log: EventLog) -> None:
        """Log the removal."""
        log.add_of(state.iterations[self.iteration_id], "the epoch was removed")
