"""What can happen to the dispatcher's state: plain values that can be written down and replayed."""

from typing import Any, TypeAlias

import msgspec

from stoker.dataset.options import Options
from stoker.dataset.tree.splits import Source
from stoker.errors import ErrorRecord
from stoker.service.messages import JobParameters, SplitSource, Versions


class DatasetAdded(msgspec.Struct, frozen=True, tag=True):
    """A dataset was registered; its tree is kept as bytes."""

    dataset_id: str
    digest: str
    tree: bytes
    structure: bytes
    spec: Any
    options: Options
    size: int
    sources: list[Source]
    runs_python: bool
    versions: Versions
    compression: str | None


class WorkerAdded(msgspec.Struct, frozen=True, tag=True):
    """A worker registered."""

    worker_id: int
    address: str
    data_transfer_addresses: dict[str, str]
    tags: list[str]
    versions: Versions


class WorkerLost(msgspec.Struct, frozen=True, tag=True):
    """A worker is gone for good, and its tasks with it."""

    worker_id: int
    why: str


class JobAdded(msgspec.Struct, frozen=True, tag=True):
    """A client asked for a job there was not."""

    job: str
    named: bool
    dataset_id: str
    parameters: JobParameters


class IterationAdded(msgspec.Struct, frozen=True, tag=True):
    """A client asked for an epoch of a job there was not."""

    iteration_id: int
    job: str
    epoch: tuple[int, ...]
    seed: int


class IterationFailed(msgspec.Struct, frozen=True, tag=True):
    """An iteration cannot run."""

    iteration_id: int
    error: ErrorRecord


class SplitsKnown(msgspec.Struct, frozen=True, tag=True):
    """The sources of an iteration and the values of the listed ones."""

    iteration_id: int
    sources: list[SplitSource]
    values: dict[int, list[Any]]


class TaskAdded(msgspec.Struct, frozen=True, tag=True):
    """An iteration runs on one more worker."""

    task_id: int
    iteration_id: int
    worker_id: int
    seed: int


class TaskEnded(msgspec.Struct, frozen=True, tag=True):
    """A task's pipeline is at its end."""

    task_id: int


class SplitsAssigned(msgspec.Struct, frozen=True, tag=True):
    """A task may begin these splits."""

    task_id: int
    source: int
    source_epoch: int
    splits: list[int]


class SplitsBegun(msgspec.Struct, frozen=True, tag=True):
    """A task reads these splits; nobody else ever will."""

    task_id: int
    source: int
    source_epoch: int
    splits: list[int]


class SplitsReturned(msgspec.Struct, frozen=True, tag=True):
    """What a task was assigned and has not begun may go to others."""

    task_id: int


class SplitsDone(msgspec.Struct, frozen=True, tag=True):
    """A task was told that a pass has no more splits."""

    task_id: int
    source: int
    source_epoch: int


class ClientAdded(msgspec.Struct, frozen=True, tag=True):
    """A client reads an iteration."""

    client_id: int
    iteration_id: int
    process: str


class ClientRemoved(msgspec.Struct, frozen=True, tag=True):
    """A client was released."""

    client_id: int


class TasksStopped(msgspec.Struct, frozen=True, tag=True):
    """The tasks of an iteration that is over were stopped."""

    iteration_id: int


class IterationRemoved(msgspec.Struct, frozen=True, tag=True):
    """An iteration is forgotten."""

    iteration_id: int


Record: TypeAlias = (
    DatasetAdded
    | WorkerAdded
    | WorkerLost
    | JobAdded
    | IterationAdded
    | IterationFailed
    | SplitsKnown
    | TaskAdded
    | TaskEnded
    | SplitsAssigned
    | SplitsBegun
    | SplitsReturned
    | SplitsDone
    | ClientAdded
    | ClientRemoved
    | TasksStopped
    | IterationRemoved
)
