"""The parts of the dispatcher's state: workers, jobs, iterations, tasks and clients."""

import dataclasses
from typing import Any

from stoker.errors import ErrorRecord
from stoker.service.dispatcher.records import JobAdded, WorkerAdded
from stoker.service.dispatcher.split_tracker import SplitTracker
from stoker.service.messages import JobParameters, SplitSource


@dataclasses.dataclass
class Worker:
    """A worker process.

    Attributes:
        draining: it will stop, and gets no more tasks and splits.
        tasks: those that it keeps.
    """

    added: WorkerAdded
    draining: bool = False
    tasks: dict[int, "Task"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Task:
    """One iteration's work on one worker.

    Attributes:
        key: the key of its readers is derived from it.
        exhausted: its pipeline has ended.
        read: a client has received its end.
        delivered: it computes no more, and all that it computed was consumed or dropped.
        dropped: the number of elements that were sent to clients that were lost.
        lost: the reason that it can be read no more; empty while it can.
        splits_lost: the splits it had begun when it was lost, if `elements_lost` is unknown.
        elements_lost: the elements that were lost with it; ``None`` if unknown.
    """

    task_id: int
    worker: WorkerAdded
    iteration: "Iteration"
    seed: int
    key: bytes = b""
    exhausted: bool = False
    read: bool = False
    delivered: bool = False
    dropped: int = 0
    lost: str = ""
    splits_lost: int = 0
    elements_lost: int | None = None

    @property
    def running(self) -> bool:
        """True while it may compute another element."""
        return not (self.exhausted or self.over)

    @property
    def over(self) -> bool:
        """True once no client will get another element of it."""
        return self.delivered or bool(self.lost)

    @property
    def whole(self) -> bool:
        """True if clients can read all of it, or have."""
        return self.exhausted and (self.read or self.delivered or not self.lost)


@dataclasses.dataclass
class TaskCounts:
    """The numbers of tasks in each state.

    Attributes:
        running: they may compute another element.
        open: clients may get another element of them.
        exhausted: their pipelines have ended.
        whole: clients can read all of them, or have.
    """

    running: int = 0
    open: int = 0
    exhausted: int = 0
    whole: int = 0

    def add(self, task: Task, sign: int = 1) -> None:
        """Count `task` in its present state; with `sign` -1, undo that before a change."""
        self.running += sign * task.running
        self.open += sign * (not task.over)
        self.exhausted += sign * task.exhausted
        self.whole += sign * task.whole


@dataclasses.dataclass
class Client:
    """One iterator of one trainer process."""

    client_id: int
    iteration: "Iteration"
    process: str


@dataclasses.dataclass
class Job:
    """A dataset with a processing mode and a name.

    Attributes:
        iterations: by epoch.
        codes: the `jobs.fingerprint` of the datasets of its clients.
    """

    added: JobAdded
    iterations: dict[tuple[int, ...], "Iteration"] = dataclasses.field(default_factory=dict)
    codes: set[str] = dataclasses.field(default_factory=set)

    @property
    def has_clients(self) -> bool:
        """True if a client reads one of its epochs."""
        return any(iteration.clients for iteration in self.iterations.values())


@dataclasses.dataclass
class Iteration:
    """One epoch of a job.

    Attributes:
        sources: the sources whose splits are assigned to tasks; ``None`` until they are known.
        trackers: (source, its epoch) → its splits.
        by_worker: worker → its task, unless that is lost.
        counts: the numbers of its tasks in each state.
        left: client that has closed → what it had consumed of each task.
        shared: more than one client has opened it.
        computed: no task computes, and none will be added unless one is lost before its end.
        finished: no client will get another element.
        stopped: its tasks have been stopped on their workers.
    """

    iteration_id: int
    job: Job
    epoch: tuple[int, ...]
    seed: int
    tasks: dict[int, Task] = dataclasses.field(default_factory=dict)
    clients: dict[int, Client] = dataclasses.field(default_factory=dict)
    sources: dict[int, SplitSource] | None = None
    values: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    trackers: dict[tuple[int, int], SplitTracker] = dataclasses.field(default_factory=dict)
    error: ErrorRecord | None = None
    by_worker: dict[int, Task] = dataclasses.field(default_factory=dict)
    counts: TaskCounts = dataclasses.field(default_factory=TaskCounts)
    left: dict[int, dict[int, tuple[int, int]]] = dataclasses.field(default_factory=dict)
    shared: bool = False
    computed: bool = False
    finished: bool = False
    stopped: bool = False

    @property
    def parameters(self) -> JobParameters:
        """The parameters of its job."""
        return self.job.added.parameters

    def tracker(self, source: int, source_epoch: int) -> SplitTracker:
        """Return the tracker of one epoch of one source; made when first asked for."""
        key = (source, source_epoch)
        if key not in self.trackers:
            assert self.sources is not None
            self.trackers[key] = SplitTracker(self.sources[source].splits)
        return self.trackers[key]

    def splits_begun_by(self, task_id: int) -> int:
        """Return the number of splits that the task has begun, over all sources."""
        return sum(tracker.begun_by(task_id) for tracker in self.trackers.values())
