"""Tasks: their readers, their ends and their losses."""

import logging
from typing import Any

from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.service.dispatcher.entities.entities import TaskEntry
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.state.event_log import EventLog
from stoker.service.dispatcher.state.iterations import decide
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.state import State
from stoker.service.plurals import plural


def add_task(state: State, task: TaskEntry) -> None:
    """Add a task to the tables of the state, to its iteration and its worker."""
    worker = state.workers.get(task.worker_id)
    task.worker = worker.added if worker else state.lost_workers[task.worker_id]
    task.iteration = iteration = state.iterations[task.iteration_id]
    state.tasks[task.task_id] = task
    iteration.add_task(task)
    if worker is not None and not task.lost and not iteration.stopped:
        worker.tasks[task.task_id] = task


def lose_task(state: State, task: TaskEntry, reason: str, elements: int | None = None) -> None:
    """Record the loss of a task; `elements` are the elements lost with the task, if known."""
    elements = mode_of(task.iteration.parameters).elements_lost(task, elements)
    begun = task.iteration.mode_state.begun_by(task.task_id) if elements is None else 0
    _change_task(state, task, lost=reason, splits_lost=begun, elements_lost=elements)
    task.iteration.damaged[task.task_id] = task
    del task.iteration.by_worker[task.worker.worker_id]
    mode_of(task.iteration.parameters).end_task(task)


def _change_task(state: State, task: TaskEntry, **changes: Any) -> None:
    """Change attributes of a task, and let its mode decide what they mean."""
    iteration = task.iteration
    # The counts are kept: an iteration may have 10,000 tasks, and each change asks for the counts.
    iteration.count(task, -1)
    for name, value in changes.items():
        setattr(task, name, value)
    iteration.count(task)
    if task.over:
        iteration.remove_readers(task)
    decide(state, iteration)


class TaskAdded(Record, frozen=True):
    """An iteration starts a task on a worker.

    `readers`: the clients that read it, whose reader ids are their own. They need a `reader_key`
    derived from `key`.
    """

    adds = "task_id"

    task_id: int
    iteration_id: int
    worker_id: int
    seed: int
    key: bytes = b""
    readers: list[int] = []

    def fits(self, state: State) -> bool:
        """Return whether the worker has no task of the iteration, which the clients read."""
        iteration = state.iterations[self.iteration_id]
        free = not iteration.stopped and self.worker_id not in iteration.by_worker
        return free and all(client_id in iteration.clients for client_id in self.readers)

    def apply(self, state: State) -> None:
        """Add the task."""
        iteration = state.iterations[self.iteration_id]
        task = TaskEntry(
            task_id=self.task_id,
            worker_id=self.worker_id,
            iteration_id=self.iteration_id,
            seed=self.seed,
            key=self.key,
            # The task yields errors in place of these calls, so it cannot die of them.
            poisoned_known=len(iteration.poison.poisoned),
        )
        add_task(state, task)
        for client_id in self.readers:
            iteration.add_reader(task, state.clients[client_id], client_id)
        decide(state, iteration)


class ReaderAdded(Record, frozen=True, tag="TaskAssigned"):
    """A client reads a task, with a `reader_id` that it has not had there."""

    task_id: int
    client_id: int
    reader_id: int

    def fits(self, state: State) -> bool:
        """Return whether the client can read the task, and does not."""
        task = state.tasks[self.task_id]
        return self.client_id in task.iteration.clients and not (
            task.has_reader(self.client_id) or task.over
        )

    def apply(self, state: State) -> None:
        """Add the reader."""
        task, client = state.tasks[self.task_id], state.clients[self.client_id]
        task.iteration.add_reader(task, client, self.reader_id)


class ReaderRevoked(Record, frozen=True, tag="TaskRevoked"):
    """A client was asked to leave a task."""

    task_id: int
    client_id: int

    def fits(self, state: State) -> bool:
        """Return whether the client reads the task."""
        return self.client_id in state.tasks[self.task_id].readers

    def apply(self, state: State) -> None:
        """Note the request."""
        task = state.tasks[self.task_id]
        task.iteration.revoke_reader(task, self.client_id)


class ReaderRemoved(Record, frozen=True, tag="TaskLeft"):
    """A client has left a task; `consumed` as in the message `TaskLeft`."""

    task_id: int
    client_id: int
    consumed: tuple[int, int]

    def fits(self, state: State) -> bool:
        """Return whether the client reads the task, or was asked to leave it."""
        return state.tasks[self.task_id].has_reader(self.client_id)

    def apply(self, state: State) -> None:
        """Remove the reader."""
        task, client = state.tasks[self.task_id], state.clients[self.client_id]
        task.iteration.remove_reader(task, client, self.consumed)
        # To read the task again the client needs another reader id.
        client.left_tasks[self.task_id] = None


class TaskEnded(Record, frozen=True):
    """The pipeline of a task has ended."""

    task_id: int

    def fits(self, state: State) -> bool:
        """Return whether the pipeline had not ended before."""
        return not state.tasks[self.task_id].exhausted

    def apply(self, state: State) -> None:
        """Note the end."""
        task = state.tasks[self.task_id]
        _change_task(state, task, exhausted=True)
        mode_of(task.iteration.parameters).end_task(task)


class TaskEndReceived(Record, frozen=True, tag="TaskRead"):
    """A client has received the end of a task."""

    task_id: int

    def fits(self, state: State) -> bool:
        """Return whether the iteration runs."""
        return not state.tasks[self.task_id].iteration.stopped

    def apply(self, state: State) -> None:
        """Note that the end was received."""
        _change_task(state, state.tasks[self.task_id], read=True)


class TaskDelivered(Record, frozen=True):
    """A task computes no more, and all that it computed was consumed or dropped."""

    task_id: int

    def fits(self, state: State) -> bool:
        """Return whether the task was not delivered before."""
        return not state.tasks[self.task_id].delivered

    def apply(self, state: State) -> None:
        """Note the delivery."""
        task = state.tasks[self.task_id]
        _change_task(state, task, delivered=True)
        mode_of(task.iteration.parameters).end_task(task)


class TaskDropped(Record, frozen=True):
    """A task was stopped, and what clients had not consumed is lost."""

    task_id: int
    reason: str

    def fits(self, state: State) -> bool:
        """Return whether a worker has the task."""
        worker = state.workers.get(state.tasks[self.task_id].worker.worker_id)
        return bool(self.reason) and worker is not None and self.task_id in worker.tasks

    def apply(self, state: State) -> None:
        """Take the task from its worker."""
        task = state.tasks[self.task_id]
        del state.workers[task.worker.worker_id].tasks[self.task_id]
        lose_task(state, task, self.reason)


class TaskDied(Record, frozen=True):
    """The worker of a task died while it ran `calls`; followed by `WorkerLost`.

    `calls`, `alone` and `how` as in the message `WorkerDied`.
    """

    task_id: int
    calls: list[CallRange]
    alone: int
    how: str

    def fits(self, state: State) -> bool:
        """Return whether the worker is there, and the calls are possible."""
        has_worker = state.tasks[self.task_id].worker.worker_id in state.workers
        valid = bool(self.calls) and all(0 <= x.first < x.stop for x in self.calls)
        return has_worker and valid

    def apply(self, state: State) -> None:
        """Add the death to those of the iteration."""
        task = state.tasks[self.task_id]
        search, known = task.iteration.poison, task.poisoned_known
        search.add(task.seed, known, self.calls, self.alone, self.how)

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the death."""
        task = state.tasks[self.task_id]
        address = task.worker.address
        text = f"user functions ran when worker {address} died: {self.how}"
        log.add_of(task.iteration, text, logging.WARNING, worker=address, task=self.task_id)


class DropsCounted(Record, frozen=True, tag="ElementsDropped"):
    """The number of elements of a task, in all, that were sent to clients that were lost."""

    task_id: int
    elements: int

    def apply(self, state: State) -> None:
        """Count the elements."""
        task = state.tasks[self.task_id]
        task.dropped = self.elements
        task.iteration.damaged[self.task_id] = task

    def log_after(self, state: State, log: EventLog) -> None:
        """Log the loss."""
        lost = plural(self.elements, "element is lost", "elements are lost")
        text = f"{lost}, sent to clients that died"
        log.add_of_task(state.tasks[self.task_id], text, logging.WARNING)
