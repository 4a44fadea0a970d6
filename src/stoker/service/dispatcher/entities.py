"""The parts of the dispatcher's state: workers, jobs, iterations, tasks and clients."""

import dataclasses
from typing import Any

from stoker.errors import ErrorRecord
from stoker.service.dispatcher.records import JobAdded, WorkerAdded
from stoker.service.dispatcher.split_tracker import SplitTracker
from stoker.service.messages import JobParameters, SplitSource


@dataclasses.dataclass
class Worker:
    """A worker process; `tasks` are those of unfinished iterations, running or exhausted."""

    added: WorkerAdded
    tasks: dict[int, "Task"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Task:
    """One iteration's work on one worker; `lost` is the reason once its worker is lost."""

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
    """One epoch of a job.

    Attributes:
        sources: the sources whose splits are assigned to tasks; ``None`` until they are known.
        trackers: (source, its epoch) → its splits.
        finished: no task will produce another element, and no task will be added.
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
