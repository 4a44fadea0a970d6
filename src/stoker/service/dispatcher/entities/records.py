"""Records: the changes of the dispatcher's state, as values that can be stored and replayed.

The journal keeps them for longer than one version of stoker lives. A record changes only by new
fields at its end that have a default; any other change needs a new record type.
"""

from typing import Any, TypeAlias

import msgspec

from stoker.dataset.drawn_seeds import DrawnSeeds
from stoker.dataset.options import Options
from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.dataset.tree.splits import Source
from stoker.errors import ErrorRecord
from stoker.service.dispatcher.modes.state import AnyAgreementChange, ModeState
from stoker.service.dispatcher.modes.states import AnyModeState
from stoker.service.messages import (
    Function,
    JobParameters,
    RoundPosition,
    SplitSource,
    Versions,
)


class _Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all records."""


class Booted(_Record, frozen=True):
    """A dispatcher has started; it gives ids from `first_id` up to, but not, `ids_end`.

    `journal_id` identifies this history among those of other dispatchers, and `boot` this start
    among all. `position_key` signs positions of the journal; only the first record has one.
    """

    journal_id: str
    first_id: int
    ids_end: int
    boot: int = 0
    position_key: bytes = b""


# Some ids are told and stand in no record, so a restarted dispatcher begins with the next block.
# (docs/decisions/047)
class IdsReserved(_Record, frozen=True):
    """The dispatcher gives ids up to, but not, `ids_end`."""

    ids_end: int


class DatasetAdded(_Record, frozen=True):
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
    file_sources: list[Source] = []
    seeds: DrawnSeeds = DrawnSeeds()


class DatasetKept(_Record, frozen=True):
    """A dataset that a client had brought was registered by `RegisterDataset`."""

    dataset_id: str


class TreeDropped(_Record, frozen=True):
    """The tree of a dataset was dropped; a client that needs it sends it again."""

    dataset_id: str


class DatasetRemoved(_Record, frozen=True):
    """A dataset was removed: no job has it."""

    dataset_id: str


class WorkerAdded(_Record, frozen=True):
    """A worker registered; `instance` as in its hello.

    It and its supervisor prove with `key` which worker it is. `place`: that of its address among
    the configured ones.
    """

    worker_id: int
    address: str
    data_transfer_addresses: dict[str, str]
    tags: list[str]
    versions: Versions
    instance: str = ""
    key: bytes = b""
    place: int | None = None


class WorkerDraining(_Record, frozen=True):
    """A worker will stop: it gets no more tasks and splits."""

    worker_id: int


class WorkerLost(_Record, frozen=True):
    """A worker was removed, and its tasks with it; `undelivered` as in `WorkerLeave`."""

    worker_id: int
    reason: str
    undelivered: dict[int, int] = {}


class TaskDied(_Record, frozen=True):
    """The worker of a task died while it ran `calls`; followed by `WorkerLost`.

    `calls`, `alone` and `how` as in the message `WorkerDied`.
    """

    task_id: int
    calls: list[CallRange]
    alone: int
    how: str


class JobAdded(_Record, frozen=True):
    """A client asked for a job that did not exist; `seeds` are those of its dataset."""

    job: str
    named: bool
    dataset_id: str
    parameters: JobParameters
    seeds: DrawnSeeds = DrawnSeeds()


class JobDatasetChanged(_Record, frozen=True):
    """A job whose tree was dropped continues with the dataset of another client."""

    job: str
    dataset_id: str


class JobCancelled(_Record, frozen=True):
    """An operator cancelled a job; its clients are refused. Records of its removal follow."""

    job: str


class IterationAdded(_Record, frozen=True):
    """A client asked for an epoch of a job that did not exist; `mode_state` is the first one."""

    iteration_id: int
    job: str
    epoch: tuple[int, ...]
    seed: int
    mode_state: AnyModeState = msgspec.field(default_factory=ModeState)


class IterationFailed(_Record, frozen=True):
    """An iteration cannot run."""

    iteration_id: int
    error: ErrorRecord


class PageStored(_Record, frozen=True):
    """A page of listed splits, which several iterations may have; `values` is the encoded list.

    `digest` is its `listed_values.page_digest`. It is dropped with the last iteration that has it.
    """

    digest: bytes
    values: bytes


class PageListed(_Record, frozen=True):
    """A worker has listed the next `count` splits of a source: those of a stored page."""

    iteration_id: int
    source: int
    count: int
    digest: bytes


class ListingDropped(_Record, frozen=True):
    """The listing of an iteration has ended early, and its pages are dropped."""

    iteration_id: int


class SplitsKnown(_Record, frozen=True):
    """The sources whose splits are assigned; all pages of the listed ones were recorded before."""

    iteration_id: int
    sources: list[SplitSource]


class TaskAdded(_Record, frozen=True):
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


class TaskAssigned(_Record, frozen=True):
    """A client reads a task, with a `reader_id` that it has not had there."""

    task_id: int
    client_id: int
    reader_id: int


class TaskRevoked(_Record, frozen=True):
    """A client was asked to leave a task."""

    task_id: int
    client_id: int


class TaskLeft(_Record, frozen=True):
    """A client has left a task; `consumed` as in the message."""

    task_id: int
    client_id: int
    consumed: tuple[int, int]


class WorkersWait(_Record, frozen=True):
    """There are workers that get a task of the iteration when clients can read more, or none."""

    iteration_id: int
    waiting: bool


class TaskEnded(_Record, frozen=True):
    """The pipeline of a task has ended."""

    task_id: int


class TaskRead(_Record, frozen=True):
    """A client has received the end of a task."""

    task_id: int


class TaskDelivered(_Record, frozen=True):
    """A task computes no more, and all that it computed was consumed or dropped."""

    task_id: int


class TaskDropped(_Record, frozen=True):
    """A task was stopped, and what clients had not consumed is lost."""

    task_id: int
    reason: str


class ElementsDropped(_Record, frozen=True):
    """The number of elements of a task, in all, that were sent to clients that were lost."""

    task_id: int
    elements: int


# Assigned splits are not recorded: a split that a restarted dispatcher forgets is announced by its
# holder before being read. (docs/decisions/043)
class SplitsBegun(_Record, frozen=True):
    """A task reads the splits in `ranges` of ``[start, stop)``; no other task ever does."""

    task_id: int
    source: int
    source_epoch: int
    ranges: list[tuple[int, int]]


class SplitsDone(_Record, frozen=True):
    """A task has received the end of an epoch of a source."""

    task_id: int
    source: int
    source_epoch: int


class ClientAdded(_Record, frozen=True):
    """A client reads an iteration; it resumes its session with `key`.

    `code` is the `jobs.fingerprint` of its dataset.
    """

    client_id: int
    iteration_id: int
    process: str
    code: str = ""
    key: bytes = b""
    consumer_index: int | None = None


class ClientRemoved(_Record, frozen=True):
    """A client was released; `consumed` and `position` as in `ClientClose`."""

    client_id: int
    consumed: dict[int, tuple[int, int]] = {}
    position: RoundPosition | None = None


class AgreementChanged(_Record, frozen=True):
    """What the clients of an iteration have agreed on changes."""

    iteration_id: int
    change: AnyAgreementChange


class TasksStopped(_Record, frozen=True):
    """The tasks of an iteration were stopped."""

    iteration_id: int


class IterationRemoved(_Record, frozen=True):
    """An iteration was removed."""

    iteration_id: int


Record: TypeAlias = (
    Booted
    | IdsReserved
    | DatasetAdded
    | DatasetKept
    | TreeDropped
    | DatasetRemoved
    | WorkerAdded
    | WorkerDraining
    | WorkerLost
    | TaskDied
    | JobAdded
    | JobDatasetChanged
    | JobCancelled
    | IterationAdded
    | IterationFailed
    | PageStored
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
    | SplitsBegun
    | SplitsDone
    | ClientAdded
    | ClientRemoved
    | AgreementChanged
    | TasksStopped
    | IterationRemoved
)
