"""The dispatcher's log: lines about the changes of its state that an operator wants to know."""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker.service.dispatcher.entities.entities import (
    ClientEntry,
    Iteration,
    TaskEntry,
    WorkerEntry,
)
from stoker.service.plurals import plural
from stoker.service.process.logs import epoch_text

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


class EventLog:
    """Collect lines about records that are applied.

    Attributes:
        now: the time of the next lines, in seconds.
        recent: the latest warnings, and ends of workers.
    """

    def __init__(self) -> None:
        self._lines: list[LogLine] = []
        self.now = 0.0
        self.recent: deque[Event] = deque(maxlen=REMEMBERED_EVENTS)

    def take(self) -> list[LogLine]:
        """Return the lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def add(self, level: int, text: str, **fields: Any) -> LogLine:
        """Add a line, and return it."""
        line = LogLine(level, text, fields)
        self._lines.append(line)
        if level >= logging.WARNING:
            self.remember(line)
        return line

    def remember(self, line: LogLine) -> None:
        """Let the status of the service show a line."""
        cut = f"{line.text[:MOST_TEXT]}..." if len(line.text) > MOST_TEXT else line.text
        self.recent.append(Event(self.now, line._replace(text=cut)))

    def worker_resumed(self, worker: WorkerEntry, reason: str) -> None:
        """Add the line about a worker that has opened another session."""
        text = f"a worker connected again{_why(reason)}"
        self.add(logging.INFO, text, worker=worker.added.address)

    def client_resumed(self, client: ClientEntry, reason: str) -> None:
        """Add the line about a client that has opened another session."""
        text = f"a client connected again{_why(reason)}"
        self.add_of(client.iteration, text, client=client.client_id)

    def add_ends(self, tasks: Sequence[TaskEntry], unfinished: Sequence[Iteration]) -> None:
        """Add the lines about `tasks` that were lost, and of `unfinished` iterations that ended."""
        for task in tasks:
            if task.elements_lost:
                what = plural(task.elements_lost, "element is lost", "elements are lost")
            elif task.lost and task.elements_lost is None and task.splits_lost:
                what = f"elements of {plural(task.splits_lost, 'split')} may be lost"
            else:
                continue
            # Without a client nobody misses the elements.
            level = logging.WARNING if task.iteration.clients else logging.INFO
            self.add_of_task(task, f"{what} with worker {task.worker.address}", level)
        for iteration in unfinished:
            if iteration.finished:
                tasks_text = plural(len(iteration.tasks), "task")
                self.add_of(iteration, f"the epoch ended after {tasks_text}")

    def add_of_task(self, task: TaskEntry, text: str, level: int) -> None:
        """Add a line about elements of a task."""
        fields = {"worker": task.worker.address, "task": task.task_id}
        text = f"job {task.iteration.job_name!r}: {text}"
        self.add_of(task.iteration, text, level, **fields)

    def add_of(
        self, iteration: Iteration, text: str, level: int = logging.INFO, **fields: Any
    ) -> None:
        """Add a line about an iteration."""
        epoch = epoch_text(iteration.epoch)
        self.add(level, text, job=iteration.job_name, epoch=epoch, **fields)


def _why(reason: str) -> str:
    return f"; its connection had failed: {reason}" if reason else ""
