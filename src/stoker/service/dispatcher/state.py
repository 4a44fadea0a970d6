"""The dispatcher's state, made by records.

`State.apply(record)` is the only thing that changes state, and it depends on nothing else:
replaying the records rebuilds it. Leases, sessions and waiting requests are not state; they live
elsewhere.
"""

import dataclasses
import functools
from typing import Any

from stoker.errors import ErrorRecord
from stoker.service.dispatcher.records import (
    ClientAdded,
    ClientRemoved,
    DatasetAdded,
    IterationAdded,
    IterationFailed,
    IterationRemoved,
    JobAdded,
    Record,
    SplitsAssigned,
    SplitsBegun,
    SplitsDone,
    SplitsKnown,
    SplitsReturned,
    TaskAdded,
    TaskEnded,
    TasksStopped,
    WorkerAdded,
    WorkerLost,
)
from stoker.service.dispatcher.splits import SplitBook
from stoker.service.messages import SplitSource


@dataclasses.dataclass
class Worker:
    """A worker process; `tasks` are those it runs or has run for a living iteration."""

    added: WorkerAdded
    tasks: dict[int, "Task"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Task:
    """One iteration's work on one worker; `lost` says why, once its worker is gone."""

    task_id: int
    worker: WorkerAdded
    iteration: "Iteration"
    seed: int
    exhausted: bool = False
    lost: str = ""

    @property
    def running(self) -> bool:
        return not (self.exhausted or self.lost)


@dataclasses.dataclass
class Client:
    """One iterator of one trainer process."""

    client_id: int
    iteration: "Iteration"
    process: str


@dataclasses.dataclass
class Job:
    """A dataset with a processing mode and a name, and its iterations by repetition."""

    added: JobAdded
    iterations: dict[tuple[int, ...], "Iteration"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Iteration:
    """One pass of a job.

    Attributes:
        sources: those whose splits are handed out; ``None`` until they are known.
        books: (source, repetition of the source) → its splits.
        finished: no task will produce another element, and none will be added.
        stopped: its tasks are gone from their workers.
    """

    iteration_id: int
    job: Job
    repetition: tuple[int, ...]
    seed: int
    tasks: dict[int, Task] = dataclasses.field(default_factory=dict)
    clients: dict[int, Client] = dataclasses.field(default_factory=dict)
    sources: dict[int, SplitSource] | None = None
    values: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    books: dict[tuple[int, int], SplitBook] = dataclasses.field(default_factory=dict)
    error: ErrorRecord | None = None
    finished: bool = False
    stopped: bool = False

    def book(self, source: int, repetition: int) -> SplitBook:
        """The splits of one pass over one source."""
        key = (source, repetition)
        if key not in self.books:
            assert self.sources is not None
            self.books[key] = SplitBook(self.sources[source].splits)
        return self.books[key]

    def splits_begun_by(self, task_id: int) -> int:
        """How many splits the task has begun, over all sources."""
        return sum(book.begun_by(task_id) for book in self.books.values())


class State:
    """All the dispatcher must not forget."""

    def __init__(self) -> None:
        self.datasets: dict[str, DatasetAdded] = {}
        self.digests: dict[str, str] = {}
        self.workers: dict[int, Worker] = {}
        self.addresses: dict[str, int] = {}
        self.jobs: dict[str, Job] = {}
        self.iterations: dict[int, Iteration] = {}
        self.tasks: dict[int, Task] = {}
        self.clients: dict[int, Client] = {}

    @functools.singledispatchmethod
    def apply(self, record: Record) -> None:
        """Changes the state as `record` says."""
        raise TypeError(f"not a record: {record!r}")

    @apply.register
    def _(self, record: DatasetAdded) -> None:
        self.datasets[record.dataset_id] = record
        self.digests.setdefault(record.digest, record.dataset_id)

    @apply.register
    def _(self, record: WorkerAdded) -> None:
        self.workers[record.worker_id] = Worker(record)
        self.addresses[record.address] = record.worker_id

    @apply.register
    def _(self, record: WorkerLost) -> None:
        worker = self.workers.pop(record.worker_id)
        del self.addresses[worker.added.address]
        for task in worker.tasks.values():
            task.lost = record.why
            self._leave_books(task)
            self._settle(task.iteration)

    @apply.register
    def _(self, record: JobAdded) -> None:
        self.jobs[record.job] = Job(record)

    @apply.register
    def _(self, record: IterationAdded) -> None:
        job = self.jobs[record.job]
        iteration = Iteration(record.iteration_id, job, record.repetition, record.seed)
        self.iterations[record.iteration_id] = iteration
        job.iterations[record.repetition] = iteration

    @apply.register
    def _(self, record: IterationFailed) -> None:
        self.iterations[record.iteration_id].error = record.error

    @apply.register
    def _(self, record: SplitsKnown) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.sources = {source.number: source for source in record.sources}
        iteration.values = record.values

    @apply.register
    def _(self, record: TaskAdded) -> None:
        iteration = self.iterations[record.iteration_id]
        worker = self.workers[record.worker_id]
        task = Task(record.task_id, worker.added, iteration, record.seed)
        self.tasks[task.task_id] = worker.tasks[task.task_id] = task
        iteration.tasks[task.task_id] = task

    @apply.register
    def _(self, record: TaskEnded) -> None:
        task = self.tasks[record.task_id]
        task.exhausted = True
        self._leave_books(task)
        self._settle(task.iteration)

    @apply.register
    def _(self, record: SplitsAssigned) -> None:
        book = self.tasks[record.task_id].iteration.book(record.source, record.repetition)
        book.assign(record.splits, record.task_id)

    @apply.register
    def _(self, record: SplitsBegun) -> None:
        book = self.tasks[record.task_id].iteration.book(record.source, record.repetition)
        book.begin(record.splits)

    @apply.register
    def _(self, record: SplitsReturned) -> None:
        for book in self.tasks[record.task_id].iteration.books.values():
            book.give_back(record.task_id)

    @apply.register
    def _(self, record: SplitsDone) -> None:
        iteration = self.tasks[record.task_id].iteration
        iteration.book(record.source, record.repetition).leave(record.task_id)

    @apply.register
    def _(self, record: ClientAdded) -> None:
        iteration = self.iterations[record.iteration_id]
        client = Client(record.client_id, iteration, record.process)
        self.clients[client.client_id] = iteration.clients[client.client_id] = client

    @apply.register
    def _(self, record: ClientRemoved) -> None:
        client = self.clients.pop(record.client_id)
        del client.iteration.clients[record.client_id]

    @apply.register
    def _(self, record: TasksStopped) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.stopped = True
        for task_id, task in iteration.tasks.items():
            if not task.lost:
                del self.workers[task.worker.worker_id].tasks[task_id]

    @apply.register
    def _(self, record: IterationRemoved) -> None:
        iteration = self.iterations.pop(record.iteration_id)
        for task_id in iteration.tasks:
            del self.tasks[task_id]
        del iteration.job.iterations[iteration.repetition]
        if not iteration.job.iterations:
            del self.jobs[iteration.job.added.job]

    @staticmethod
    def _leave_books(task: Task) -> None:
        for book in task.iteration.books.values():
            book.leave(task.task_id)

    @staticmethod
    def _settle(iteration: Iteration) -> None:
        """A pass is over when nothing runs and some task came to its end (not all were lost)."""
        tasks = iteration.tasks.values()
        if not any(task.running for task in tasks) and any(task.exhausted for task in tasks):
            iteration.finished = True
