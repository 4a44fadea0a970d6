"""The dispatcher's log: lines about the changes of its state that an operator wants to know."""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import Client, Iteration, Task, Worker
from stoker.service.dispatcher.state.state import State
from stoker.service.plurals import plural
from stoker.service.process.logs import epoch_text

STOPPED = "it was stopped"
"""Reason of the loss of a worker that was stopped as planned."""


REMEMBERED_EVENTS, MOST_TEXT = 100, 1000
"""Latest losses, failures and ends of workers that the status of the service shows, and the most
characters of each: the message of a user's exception may have megabytes."""


class LogLine(NamedTuple):
    """A line of the log; `fields` are values of `logs.FIELDS`."""

    level: int
    text: str
    fields: dict[str, Any]


class Event(NamedTuple):
    """A line that the status of the service shows, and its time in seconds."""

    at: float
    line: LogLine


class Before(NamedTuple):
    """The tasks that a record may end, and those of their iterations that had not finished."""

    tasks: Sequence[Task] = ()
    unfinished: Sequence[Iteration] = ()


_NOTHING = Before()

_LOGGED = {
    r.ClientAdded,
    r.ClientRemoved,
    r.DatasetAdded,
    r.ElementsDropped,
    r.IterationAdded,
    r.IterationFailed,
    r.IterationRemoved,
    r.DatasetRemoved,
    r.JobAdded,
    r.JobCancelled,
    r.TaskDelivered,
    r.TaskDied,
    r.TaskDropped,
    r.TaskEnded,
    r.TaskRead,
    r.TasksStopped,
    r.WorkerAdded,
    r.WorkerDraining,
    r.WorkerLost,
}
"""Records with lines; the others are many."""


class EventLog:
    """Collect lines about records; `before` and `after` are called around each application.

    Args:
        state: the state to which the records are applied.

    Attributes:
        now: the time of the next lines, in seconds.
        recent: the latest warnings, and ends of workers.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._lines: list[LogLine] = []
        self.now = 0.0
        self.recent: deque[Event] = deque(maxlen=REMEMBERED_EVENTS)

    def take(self) -> list[LogLine]:
        """Return the lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def add(self, level: int, text: str, **fields: Any) -> None:
        """Add a line."""
        line = LogLine(level, text, fields)
        self._lines.append(line)
        if level >= logging.WARNING:
            self._remember(line)

    def _remember(self, line: LogLine) -> None:
        cut = f"{line.text[:MOST_TEXT]}..." if len(line.text) > MOST_TEXT else line.text
        self.recent.append(Event(self.now, line._replace(text=cut)))

    def before(self, record: r.Record) -> Before:
        """Add the line about an entity that the record removes; return what `after` needs."""
        if type(record) not in _LOGGED:
            return _NOTHING
        tasks: list[Task] = []
        match record:
            case r.TaskEnded() | r.TaskRead() | r.TaskDelivered() | r.TaskDropped():
                tasks = [self._state.tasks[record.task_id]]
            case r.WorkerLost():
                worker = self._state.workers[record.worker_id]
                self._log_lost_worker(worker, record.reason)
                tasks = list(worker.tasks.values())
            case r.JobCancelled():
                epochs = self._state.jobs[record.job].iterations.values()
                clients = sum(len(each.clients) for each in epochs)
                refused = plural(clients, "client is refused", "clients are refused")
                self.add(logging.WARNING, f"the job was cancelled; {refused}", job=record.job)
            case r.ClientRemoved():
                client = self._state.clients[record.client_id]
                self._add(client.iteration, "a client left", client=record.client_id)
            case r.TasksStopped():
                iteration = self._state.iterations[record.iteration_id]
                if not iteration.finished:
                    self._add(iteration, "the epoch was stopped: no client reads it")
            case r.IterationRemoved():
                iteration = self._state.iterations[record.iteration_id]
                self._add(iteration, "the epoch was removed")
        iterations = {task.iteration.iteration_id: task.iteration for task in tasks}
        return Before(tasks, [each for each in iterations.values() if not each.finished])

    def after(self, record: r.Record, before: Before) -> None:
        """Add the lines about entities that the record has added or changed."""
        if before is _NOTHING:
            return
        self._log_added(record)
        self._log_changed(record)
        self._log_losses(before.tasks)
        for iteration in before.unfinished:
            if iteration.finished:
                tasks = plural(len(iteration.tasks), "task")
                self._add(iteration, f"the epoch ended after {tasks}")

    def _log_added(self, record: r.Record) -> None:
        match record:
            case r.DatasetAdded():
                text = f"dataset {record.dataset_id} was registered ({len(record.tree)} bytes)"
                self.add(logging.DEBUG, text)
            case r.DatasetRemoved():
                self.add(logging.DEBUG, f"dataset {record.dataset_id} was removed")
            case r.WorkerAdded():
                tags = f" with tags {', '.join(record.tags)}" if record.tags else ""
                text = f"a worker joined{tags}; there are {len(self._state.workers)}"
                self.add(logging.INFO, text, worker=record.address)
            case r.JobAdded():
                mode = record.parameters.processing_mode.name
                text = f"a job was created: policy {mode}, dataset {record.dataset_id}"
                self.add(logging.INFO, text, job=record.job)
            case r.IterationAdded():
                self._add(self._state.iterations[record.iteration_id], "an epoch begins")
            case r.ClientAdded():
                client = self._state.clients[record.client_id]
                self._add(client.iteration, "a client joined", client=record.client_id)

    def _log_changed(self, record: r.Record) -> None:
        match record:
            case r.WorkerDraining():
                worker = self._state.workers[record.worker_id]
                self.add(logging.INFO, "a worker is draining", worker=worker.added.address)
            case r.IterationFailed():
                iteration = self._state.iterations[record.iteration_id]
                self._add(iteration, f"the epoch failed: {record.error.message}", logging.ERROR)
            case r.TaskDied():
                task = self._state.tasks[record.task_id]
                text = f"user functions ran when worker {task.worker.address} died: {record.how}"
                self._add_task(task, text, logging.WARNING)
            case r.ElementsDropped():
                task = self._state.tasks[record.task_id]
                lost = plural(record.elements, "element is lost", "elements are lost")
                text = f"{_job(task)}: {lost}, sent to clients that died"
                self._add_task(task, text, logging.WARNING)

    def worker_resumed(self, worker: Worker, reason: str) -> None:
        """Add the line about a worker that has opened another session."""
        text = f"a worker connected again{_why(reason)}"
        self.add(logging.INFO, text, worker=worker.added.address)

    def client_resumed(self, client: Client, reason: str) -> None:
        """Add the line about a client that has opened another session."""
        text = f"a client connected again{_why(reason)}"
        self._add(client.iteration, text, client=client.client_id)

    def _log_lost_worker(self, worker: Worker, reason: str) -> None:
        planned = reason == STOPPED
        number = len(worker.tasks)
        ends = f"; {plural(number, 'task ends', 'tasks end')}" if number else ""
        self.add(
            logging.INFO if planned else logging.WARNING,
            f"worker {worker.added.address} {'left' if planned else 'was lost'}: {reason}{ends}",
            worker=worker.added.address,
        )
        if planned:
            self._remember(self._lines[-1])

    def _log_losses(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.elements_lost:
                what = plural(task.elements_lost, "element is lost", "elements are lost")
            elif task.lost and task.elements_lost is None and task.splits_lost:
                what = f"elements of {plural(task.splits_lost, 'split')} may be lost"
            else:
                continue
            level = logging.WARNING if task.iteration.clients else logging.INFO
            self._add_task(task, f"{_job(task)}: {what} with worker {task.worker.address}", level)

    def _add_task(self, task: Task, text: str, level: int) -> None:
        fields = {"worker": task.worker.address, "task": task.task_id}
        self._add(task.iteration, text, level, **fields)

    def _add(
        self, iteration: Iteration, text: str, level: int = logging.INFO, **fields: Any
    ) -> None:
        job, epoch = iteration.job.added.job, epoch_text(iteration.epoch)
        self.add(level, text, job=job, epoch=epoch, **fields)


def _job(task: Task) -> str:
    return f"job {task.iteration.job.added.job!r}"


def _why(reason: str) -> str:
    return f"; its connection had failed: {reason}" if reason else ""
