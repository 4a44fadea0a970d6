"""The parts of the dispatcher's state: workers, jobs, iterations, tasks and clients."""

import dataclasses
from typing import Any

from stoker.errors import ErrorRecord
from stoker.service.dispatcher.records import JobAdded, WorkerAdded
from stoker.service.dispatcher.splits import SplitBook
from stoker.service.messages import JobParameters, SplitSource


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
    """A dataset with a processing mode and a name, and its iterations by epoch."""

    added: JobAdded
    iterations: dict[tuple[int, ...], "Iteration"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Iteration:
    """One pass of a job.

    Attributes:
        sources: those whose splits are handed out; ``None`` until they are known.
        books: (source, its epoch) → its splits.
        finished: no task will produce another element, and none will be added.
        stopped: its tasks are gone from their workers.
    """

    iteration_id: int
    job: Job
    epoch: tuple[int, ...]
    seed: int
    tasks: dict[int, Task] = dataclasses.field(default_factory=dict)
    clients: dict[int, Client] = dataclasses.field(default_factory=dict)
    sources: dict[int, SplitSource] | None = None
    values: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    books: dict[tuple[int, int], SplitBook] = dataclasses.field(default_factory=dict)
    error: ErrorRecord | None = None
    finished: bool = False
    stopped: bool = False

    @property
    def parameters(self) -> JobParameters:
        """The parameters of its job."""
        return self.job.added.parameters

    def book(self, source: int, source_epoch: int) -> SplitBook:
        """The splits of one pass over one source."""
        key = (source, source_epoch)
        if key not in self.books:
            assert self.sources is not None
            self.books[key] = SplitBook(self.sources[source].splits)
        return self.books[key]

    def splits_begun_by(self, task_id: int) -> int:
        """How many splits the task has begun, over all sources."""
        return sum(book.begun_by(task_id) for book in self.books.values())
