"""Totals and rates that workers and clients report with their heartbeats. Volatile."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeVar

from stoker.service import messages as m
from stoker.service.dispatcher.state.state import State
from stoker.service.loading import Loading

T = TypeVar("T")


@dataclasses.dataclass
class Amounts:
    """Elements, their bytes, and errors: totals, or numbers per second."""

    elements: float = 0
    bytes: float = 0
    errors: float = 0

    def add(self, elements: float, nbytes: float, errors: float = 0) -> None:
        """Add to the numbers."""
        self.elements += elements
        self.bytes += nbytes
        self.errors += errors


@dataclasses.dataclass
class WorkerReports:
    """Reports of one worker.

    Attributes:
        version: its version of stoker, or "".
        started_at: the time at which its process was started; ``None`` if unknown.
        last_at: the time of its last heartbeat; ``None`` before the first.
        loading: as in its last heartbeat.
        rates: the rates of the tasks that computed anything between the last two heartbeats.
    """

    version: str = ""
    started_at: float | None = None
    last_at: float | None = None
    loading: Loading | None = None
    rates: dict[int, Amounts] = dataclasses.field(default_factory=dict)

    @property
    def rate(self) -> Amounts:
        """The sum of the rates of its tasks."""
        total = Amounts()
        for rate in self.rates.values():
            total.add(rate.elements, rate.bytes)
        return total


@dataclasses.dataclass
class ClientReports:
    """Reports of one client: the last one, and the one before it."""

    last: m.ReadReport
    before: m.ReadReport | None = None

    def per_second(self, total: str) -> float | None:
        """Return the growth of a total per second; ``None`` if unknown."""
        if self.before is None:
            return None
        # On the clock of the client: messages wait where the network or the dispatcher is slow.
        seconds = self.last.elapsed - self.before.elapsed
        growth: float = getattr(self.last, total) - getattr(self.before, total)
        return growth / seconds if seconds > 0 else None


class Reports:
    """The last two heartbeats of all workers and clients, and totals of epochs.

    Args:
        state: the tasks and their iterations.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._workers: dict[int, WorkerReports] = {}
        self._clients: dict[int, ClientReports] = {}
        self._tasks: dict[int, m.TaskReport] = {}
        self._epochs: dict[int, Amounts] = {}

    def welcomed(self, worker_id: int, hello: m.WorkerHello) -> None:
        """Keep what a worker says of itself."""
        self._workers.setdefault(worker_id, WorkerReports()).version = hello.version

    def received(self, holder: int, heartbeat: m.Heartbeat, now: float) -> None:
        """Handle a heartbeat of a worker or client, at `now` in seconds."""
        if holder in self._state.workers:
            self._received_worker(holder, heartbeat, now)
        elif heartbeat.reading is not None:
            known = self._clients.get(holder)
            self._clients[holder] = ClientReports(
                heartbeat.reading, None if known is None else known.last
            )
        self._workers = _pruned(self._workers, self._state.workers)
        self._clients = _pruned(self._clients, self._state.clients)

    def _received_worker(self, worker_id: int, heartbeat: m.Heartbeat, now: float) -> None:
        reports = self._workers.setdefault(worker_id, WorkerReports())
        # Of a worker that was there before this dispatcher, the first totals are no rate.
        seconds = 0.0 if reports.last_at is None else now - reports.last_at
        reports.last_at, reports.loading = now, heartbeat.loading
        if heartbeat.uptime is not None:
            reports.started_at = now - heartbeat.uptime
        new = self.add(worker_id, heartbeat.tasks)
        reports.rates = {
            task_id: Amounts(computed.elements / seconds, computed.bytes / seconds)
            for task_id, computed in new.items()
            if seconds > 0 and (computed.elements or computed.errors > 0)
        }

    def add(self, worker_id: int, totals: dict[int, m.TaskReport]) -> dict[int, Amounts]:
        """Add the totals of tasks of a worker; return the differences to those before."""
        tasks = self._state.workers[worker_id].tasks
        new = {}
        for task_id, report in totals.items():
            task = tasks.get(task_id)
            if task is None:
                continue
            before = self.task(task_id)
            self._tasks[task_id] = report
            new[task_id] = computed = Amounts(
                report.elements - before.elements,
                report.bytes - before.bytes,
                report.errors - before.errors,
            )
            epoch = self._epochs.setdefault(task.iteration.iteration_id, Amounts())
            epoch.add(computed.elements, computed.bytes, computed.errors)
        self._tasks = _pruned(self._tasks, self._state.tasks)
        self._epochs = _pruned(self._epochs, self._state.iterations)
        return new

    def worker(self, worker_id: int) -> WorkerReports:
        """Return the reports of a worker."""
        return self._workers.get(worker_id) or WorkerReports()

    def task(self, task_id: int) -> m.TaskReport:
        """Return the totals of a task, also of one whose worker has left."""
        return self._tasks.get(task_id) or m.TaskReport(0, 0)

    def client(self, client_id: int) -> ClientReports:
        """Return the reports of a client."""
        return self._clients.get(client_id) or ClientReports(m.ReadReport(0, 0, 0.0, 0.0))

    def computed(self, iteration_id: int) -> Amounts:
        """Return the totals of an epoch."""
        return self._epochs.get(iteration_id) or Amounts()

    def task_rates(self) -> Iterator[tuple[int, int, Amounts]]:
        """Yield worker, task and rate of all tasks that computed anything lately."""
        for worker_id, reports in self._workers.items():
            for task_id, rate in reports.rates.items():
                yield worker_id, task_id, rate


def _pruned(found: dict[int, T], known: Mapping[int, object]) -> dict[int, T]:
    """Return the entries of what exists, once half of them do not."""
    # Not at each heartbeat: the average cost stays constant, and the memory within a factor of 2.
    if len(found) <= 2 * len(known):
        return found
    return {each: value for each, value in found.items() if each in known}
