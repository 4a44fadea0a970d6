"""Messages of a worker's session: first those that it sends, then those that it receives."""

from typing import TypeAlias

import msgspec

from stoker.dataset.streams.calls.call_ranges import CallRange, PoisonedCall
from stoker.errors import ErrorRecord
from stoker.service.messages.deterministic import PositionTask
from stoker.service.messages.dynamic import ReturnSplits, SplitGrant, SplitRequest, SplitTask
from stoker.service.messages.session import (
    Count,
    DispatcherMessage,
    Heartbeat,
    JournalPosition,
    Message,
    TaskReport,
)
from stoker.service.messages.static import ShardPage, ShardRequest, ShardTask
from stoker.service.messages.tasks import Versions, WholeTask

AnyTask: TypeAlias = WholeTask | SplitTask | ShardTask | PositionTask


# Repeats the state of the worker: messages on a broken session may be lost in both directions.
class WorkerHello(Message, frozen=True, tag=True):
    """First on a worker's session. With `worker_id`: it had one, and still runs `tasks`.

    `readers` are the reader ids it keeps something for, by task, and `listings` the lists of splits
    that it keeps. `draining`: it gets no tasks. `key` is that of the `WorkerWelcome`. `instance` is
    a secret of the worker, which tells it from another at its address, and `session` counts its
    sessions, as an older one may be heard later. `reason`: why the last session ended. `version`:
    that of stoker.
    """

    protocol_min: int
    protocol_max: int
    address: str
    data_transfer_addresses: dict[str, str]
    versions: Versions
    tags: list[str] = []
    worker_id: int | None = None
    journal_id: str = ""
    tasks: list[int] = []
    readers: dict[int, list[int]] = {}
    listings: list[int] = []
    draining: bool = False
    key: bytes = b""
    instance: str = ""
    session: int = 0
    reason: str = ""
    version: str = ""
    journal_position: JournalPosition | None = None


class SplitsPage(Message, frozen=True, tag=True):
    """Answer to `ListSplits`: a part of the list of a source's splits, of about 1 MiB at most.

    `values` is the list of the values from position `start` on, of `total` in all.
    """

    listing_id: int
    source: int
    start: int
    total: int
    values: msgspec.Raw


class ListingFailed(Message, frozen=True, tag=True):
    """Answer to `ListSplits`: the splits cannot be listed."""

    listing_id: int
    error: ErrorRecord


# Repeated as a whole: a message of changes could be lost with its session.
class TaskProgress(Message, frozen=True, tag=True):
    """The state of a task, sent after each change and first on each session.

    `exhausted`: the pipeline has ended. `delivered`: it computes no more, and clients have consumed
    every element or dropped it. `dropped`: elements sent to clients that were lost, in all.
    `computed`: its totals when it computes no more; the next heartbeat may come after its epoch.
    `leaving`: its worker stops, so that the consumers of a coordinated read leave it.
    """

    task_id: int
    exhausted: bool = False
    delivered: bool = False
    dropped: Count = 0
    computed: TaskReport | None = None
    leaving: bool = False


class WorkerDraining(Message, frozen=True, tag=True):
    """The worker will stop: it begins no tasks and no splits, and delivers what it has computed."""


class WorkerLeave(Message, frozen=True, tag=True):
    """The worker stops, so its lease need not expire.

    `undelivered`: the number of elements that are lost with each task that computes no more.
    `computed`: the totals of the tasks that have computed anything since the last heartbeat.
    """

    undelivered: dict[int, Count] = {}
    computed: dict[int, TaskReport] = {}


class WorkerWelcome(DispatcherMessage, frozen=True, tag=True):
    """The session is open. If `worker_id` or `journal_id` differs from the hello's: drop all tasks.

    `journaled`: a restarted dispatcher goes on, so that it is worth waiting for.
    """

    protocol: int
    worker_id: int
    journal_id: str
    heartbeat_ms: int
    key: bytes = b""
    journaled: bool = False


# Has all that a task needs but the tree, which a worker fetches once for all epochs.
class TaskStart(DispatcherMessage, frozen=True, tag=True):
    """Run the dataset for one iteration.

    `mode` says what the task yields and how clients share it; `key` proves which client may read it
    (`reader_key`). Of the calls of user functions, `traced` ones are recorded one by one,
    `suspects` run alone, and `poisoned` ones are replaced by an error. `job` is for the log.
    `salts` are those of `DrawnSeeds`.
    """

    task_id: int
    iteration_id: int
    dataset_id: str
    seed: int
    epoch: tuple[int, ...]
    mode: AnyTask = WholeTask()
    key: bytes = b""
    traced: list[CallRange] = []
    suspects: list[CallRange] = []
    poisoned: list[PoisonedCall] = []
    job: str = ""
    salts: list[int] = []


class Drain(DispatcherMessage, frozen=True, tag=True):
    """Begin no tasks and no splits, deliver computed elements, then leave: an operator asks."""


class TaskStop(DispatcherMessage, frozen=True, tag=True):
    """Stop the task: no client reads it any more."""

    task_id: int


# A worker lists files: it has the libraries and the credentials of the dataset.
class ListSplits(DispatcherMessage, frozen=True, tag=True):
    """Send the page of a source's splits from position `start` on.

    The worker lists them when it is first asked, and keeps the list until `StopListing`.
    `in_order`: in the order in which static shards divide them. `salts` are those of `DrawnSeeds`.
    """

    listing_id: int
    dataset_id: str
    seed: int
    epoch: tuple[int, ...]
    source: int
    start: int = 0
    in_order: bool = False
    salts: list[int] = []


class StopListing(DispatcherMessage, frozen=True, tag=True):
    """Drop a list of splits: all pages have arrived, or nobody needs them."""

    listing_id: int


class ClientReleased(DispatcherMessage, frozen=True, tag=True):
    """The client was released.

    `consumed` has the values of `GiveBack` from a client that closed: ``(frame, elements of it)``;
    the rest is for other clients. Without `consumed` the rest is dropped and counted as lost, or
    kept for the next consumer with `consumer_index`.
    """

    task_id: int
    client_id: int
    consumed: tuple[int, int] | None = None
    consumer_index: int | None = None


TaskRequest: TypeAlias = SplitRequest | ShardRequest
FromWorker: TypeAlias = (
    WorkerHello
    | Heartbeat
    | TaskRequest
    | SplitsPage
    | ListingFailed
    | TaskProgress
    | WorkerDraining
    | WorkerLeave
)
ToWorker: TypeAlias = (
    WorkerWelcome
    | TaskStart
    | Drain
    | TaskStop
    | ListSplits
    | StopListing
    | SplitGrant
    | ShardPage
    | ReturnSplits
    | ClientReleased
)
