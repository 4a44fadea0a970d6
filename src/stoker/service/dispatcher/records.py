"""Records: the changes of the dispatcher's state, as values that can be stored and replayed."""

from typing import Any, TypeAlias

import msgspec

from stoker.dataset.options import Options
from stoker.dataset.streams.call_ranges import CallRange
from stoker.dataset.tree.splits import Source
from stoker.errors import ErrorRecord
from stoker.service.messages import Function, JobParameters, SplitSource, Versions


class DatasetAdded(msgspec.Struct, frozen=True, tag=True):
    """A dataset was registered; its tree stays bytes.

    `kept`: by `RegisterDataset`, for readers of its id. Others are removed with their last job.
    """

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
    functions: list[Function] = []
    kept: bool = False


class DatasetKept(msgspec.Struct, frozen=True, tag=True):
    """A dataset that a client had brought was registered by `RegisterDataset`."""

    dataset_id: str


class TreeDropped(msgspec.Struct, frozen=True, tag=True):
    """The tree of a dataset was dropped; a client that needs it sends it again."""

    dataset_id: str


class DatasetRemoved(msgspec.Struct, frozen=True, tag=True):
    """A dataset was removed: no job has it."""

    dataset_id: str


class WorkerAdded(msgspec.Struct, frozen=True, tag=True):
    """A worker registered; `instance` as in its hello.

    It and its supervisor prove with `key` which worker it is.
    """

    worker_id: int
    address: str
    data_transfer_addresses: dict[str, str]
    tags: list[str]
    versions: Versions
    instance: str = ""
    key: bytes = b""


class WorkerDraining(msgspec.Struct, frozen=True, tag=True):
    """A worker will stop: it gets no more tasks and splits."""

    worker_id: int


class WorkerLost(msgspec.Struct, frozen=True, tag=True):
    """A worker was removed, and its tasks with it; `undelivered` as in `WorkerLeave`."""

    worker_id: int
    reason: str
    undelivered: dict[int, int] = {}


class TaskDied(msgspec.Struct, frozen=True, tag=True):
    """The worker of a task died while it ran `calls`; followed by `WorkerLost`.

    `calls`, `alone` and `how` as in the message `WorkerDied`.
    """

    task_id: int
    calls: list[CallRange]
    alone: int
    how: str


class JobAdded(msgspec.Struct, frozen=True, tag=True):
    """A client asked for a job that did not exist."""

    job: str
    named: bool
    dataset_id: str
    parameters: JobParameters


class JobDatasetChanged(msgspec.Struct, frozen=True, tag=True):
    """A job whose tree was dropped continues with the dataset of another client."""

    job: str
    dataset_id: str


class IterationAdded(msgspec.Struct, frozen=True, tag=True):
    """A client asked for an epoch of a job that did not exist."""

    iteration_id: int
    job: str
    epoch: tuple[int, ...]
    seed: int


class IterationFailed(msgspec.Struct, frozen=True, tag=True):
    """An iteration cannot run."""

    iteration_id: int
    error: ErrorRecord


class PageListed(msgspec.Struct, frozen=True, tag=True):
    """A worker has listed the next `count` splits of a source; `values` is their encoded list."""

    iteration_id: int
    source: int
    count: int
    values: bytes


class ListingDropped(msgspec.Struct, frozen=True, tag=True):
    """The listing of an iteration has ended early, and its pages are dropped."""

    iteration_id: int


class SplitsKnown(msgspec.Struct, frozen=True, tag=True):
    """The sources whose splits are assigned; all pages of the listed ones were recorded before."""

    iteration_id: int
    sources: list[SplitSource]


class TaskAdded(msgspec.Struct, frozen=True, tag=True):
    """An iteration starts a task on a worker.

    `readers`: the clients that read it, whose reader ids are their own. They need a `reader_key`
    derived from `key`.
    """

    task_id: int
    iteration_id: int
    worker_id: int
    seed: int
    key: bytes = b""
    readers: list[int] = []


class TaskAssigned(msgspec.Struct, frozen=True, tag=True):
    """A client reads a task, with a `reader_id` that it has not had there."""

    task_id: int
    client_id: int
    reader_id: int


class TaskRevoked(msgspec.Struct, frozen=True, tag=True):
    """A client was asked to leave a task."""

    task_id: int
    client_id: int


class TaskLeft(msgspec.Struct, frozen=True, tag=True):
    """A client has left a task; `consumed` as in the message."""

    task_id: int
    client_id: int
    consumed: tuple[int, int]


class WorkersWait(msgspec.Struct, frozen=True, tag=True):
    """There are workers that get a task of the iteration when clients can read more, or none."""

    iteration_id: int
    waiting: bool


class TaskEnded(msgspec.Struct, frozen=True, tag=True):
    """The pipeline of a task has ended."""

    task_id: int


class TaskRead(msgspec.Struct, frozen=True, tag=True):
    """A client has received the end of a task."""

    task_id: int


class TaskDelivered(msgspec.Struct, frozen=True, tag=True):
    """A task computes no more, and all that it computed was consumed or dropped."""

    task_id: int


class TaskDropped(msgspec.Struct, frozen=True, tag=True):
    """A task was stopped, and what clients had not consumed is lost."""

    task_id: int
    reason: str


class ElementsDropped(msgspec.Struct, frozen=True, tag=True):
    """The number of elements of a task, in all, that were sent to clients that were lost."""

    task_id: int
    elements: int


class SplitsAssigned(msgspec.Struct, frozen=True, tag=True):
    """A task may begin these splits."""

    task_id: int
    source: int
    source_epoch: int
    splits: list[int]


class SplitsBegun(msgspec.Struct, frozen=True, tag=True):
    """A task reads these splits; they are never assigned again."""

    task_id: int
    source: int
    source_epoch: int
    splits: list[int]


class SplitsReturned(msgspec.Struct, frozen=True, tag=True):
    """The splits that a task has not begun are available to others."""

    task_id: int


class SplitsDone(msgspec.Struct, frozen=True, tag=True):
    """A task has received the end of an epoch of a source."""

    task_id: int
    source: int
    source_epoch: int


class ClientAdded(msgspec.Struct, frozen=True, tag=True):
    """A client reads an iteration; it resumes its session with `key`.

    `code` is the `jobs.fingerprint` of its dataset.
    """

    client_id: int
    iteration_id: int
    process: str
    code: str = ""
    key: bytes = b""


class ClientRemoved(msgspec.Struct, frozen=True, tag=True):
    """A client was released; `consumed` as in `ClientClose`."""

    client_id: int
    consumed: dict[int, tuple[int, int]] = {}


class TasksStopped(msgspec.Struct, frozen=True, tag=True):
    """The tasks of an iteration were stopped."""

    iteration_id: int


class IterationRemoved(msgspec.Struct, frozen=True, tag=True):
    """An iteration was removed."""

    iteration_id: int


Record: TypeAlias = (
    DatasetAdded
    | DatasetKept
    | TreeDropped
    | DatasetRemoved
    | WorkerAdded
    | WorkerDraining
    | WorkerLost
    | TaskDied
    | JobAdded
    | JobDatasetChanged
    | IterationAdded
    | IterationFailed
    | PageListed
    | ListingDropped
    | SplitsKnown
    | TaskAdded
    | TaskAssigned
    | TaskRevoked
    | TaskLeft
    | WorkersWait
    | TaskEnded
    | TaskRead
    | TaskDelivered
    | TaskDropped
    | ElementsDropped
    | SplitsAssigned
    | SplitsBegun
    | SplitsReturned
    | SplitsDone
    | ClientAdded
    | ClientRemoved
    | TasksStopped
    | IterationRemoved
)
