"""Messages of the control plane, between the dispatcher and its workers and clients.

Workers and clients each keep one *session* (a stream) open: `ToDispatcher` in one direction,
`ToWorker` and `ToClient` in the other. A *call* needs no session: a `Request` and its `Reply`. All
are msgspec Structs, tagged by class name, encoded as msgpack. A split is ``(number, value)``: the
value of an index source's split is ``(start, stop)``, of a listed one the value that a worker
listed.
"""

import enum
from typing import Any, TypeAlias

import msgspec

from stoker.dataset.options import Options
from stoker.dataset.streams.call_ranges import NO_DIGEST, CallRange, PoisonedCall
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.dataset.tree.splits import ShardBy, Source
from stoker.errors import ErrorRecord
from stoker.service.processing_modes import ShardingPolicy
from stoker.service.status import Status

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1


class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Base of all control messages."""


class Versions(msgspec.Struct, frozen=True):
    """Versions that must match where a function is pickled and where it runs: "3.11" and "2"."""

    python: str
    numpy: str


class BufferPolicy(enum.Enum):
    """Rules for the client that gets each element of a task."""

    FIRST_COME = "first_come"
    SLIDING_WINDOW = "sliding_window"
    ROUND_ROBIN = "round_robin"


class Shard(msgspec.Struct, frozen=True):
    """Shard `index` of `count`, under static sharding."""

    by: ShardBy
    count: int
    index: int


class JobParameters(msgspec.Struct, frozen=True):
    """Parameters that all clients of one job must agree on, besides the dataset's structure."""

    processing_mode: ShardingPolicy
    target_workers: str = "AUTO"
    num_consumers: int | None = None
    use_cross_trainer_cache: bool = False


class TaskInfo(msgspec.Struct, frozen=True):
    """A task with the addresses at which clients read it.

    `data_transfer_addresses` maps a data transfer protocol to the worker's address. The client
    shows the worker its `reader_id`, which is its own id unless it has left the task before, and
    the `reader_key` of that.
    """

    task_id: int
    worker: str
    data_transfer_addresses: dict[str, str]
    tags: list[str] = []
    reader_id: int = 0
    key: bytes = b""


class TaskLost(msgspec.Struct, frozen=True):
    """A task that can be read no more, and what clients had not consumed of it.

    `elements`: the number of elements lost, 0 if all were delivered; ``None`` if unknown: then
    elements of the `splits_begun` may be lost. `read_again`: the shard that another task reads from
    its beginning, or "".
    """

    task_id: int
    worker: str
    reason: str
    splits_begun: int = 0
    elements: int | None = None
    read_again: str = ""


class ElementsDropped(msgspec.Struct, frozen=True):
    """The number of elements of a task that were sent to a client that was lost, in all."""

    task_id: int
    worker: str
    elements: int


class SplitSource(msgspec.Struct, frozen=True):
    """A source that is read in `splits` splits; an index source has `count` elements."""

    number: int
    splits: int
    count: int | None = None


class RoundPosition(msgspec.Struct, frozen=True):
    """A place in the schedule of a coordinated read.

    `slot` is the number of slots before it, `turns` are the tasks from the next turn on, and `runs`
    the number of runs of each task before it. `step`: the number of elements that a consumer which
    owes none has yielded before it.
    """

    slot: int = 0
    turns: list[int] = []
    runs: dict[int, int] = {}
    step: int = 0


class RoundsChange(msgspec.Struct, frozen=True):
    """The schedule of a coordinated read from a position on.

    `number` counts the changes. The first `fillers` slots are for consumers that lack elements of a
    lost worker; the others skip them. `last`: the iteration ends at the position.
    """

    number: int
    position: RoundPosition
    fillers: int = 0
    last: bool = False


# ── worker → dispatcher ──────────────────────────────────────────────────────────────────────────
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


class TaskReport(msgspec.Struct, frozen=True):
    """Totals of a task on its worker.

    `elements` that it has computed, of about `bytes`, and `errors` in place of elements.
    """

    elements: int
    bytes: int
    errors: int = 0


class ReadReport(msgspec.Struct, frozen=True):
    """Totals of a client.

    The user has consumed `elements`, of about `bytes`, and waited for them for `waited` of
    `elapsed` seconds. `bottleneck` is the kind of what is slow, `sentence` says it to the user.
    """

    elements: int
    bytes: int
    waited: float
    elapsed: float
    bottleneck: str = ""
    sentence: str = ""


class Heartbeat(Message, frozen=True, tag=True):
    """Renew the sender's lease, and report what it has done.

    From a worker: `tasks` that have computed anything since its last heartbeat of this session, and
    its `uptime` in seconds. From a client: `reading`.
    """

    tasks: dict[int, TaskReport] = {}
    uptime: float | None = None
    reading: ReadReport | None = None


class SplitRequest(Message, frozen=True, tag=True):
    """Announce that the splits in `begin` will be read, and ask for `want` more.

    Even near the end of the epoch the answer should have `least` splits, because fewer are not
    worth a round trip. `done`: the source has received its end, so no request will follow.
    """

    task_id: int
    source: int
    source_epoch: int
    begin: list[int] = []
    want: int = 0
    least: int = 1
    done: bool = False


class ShardRequest(Message, frozen=True, tag=True):
    """Ask for the files of the task's shard of a source, from position `start` of them on."""

    task_id: int
    source: int
    start: int


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


class TaskProgress(Message, frozen=True, tag=True):
    """The state of a task, sent after each change and first on each session.

    `exhausted`: the pipeline has ended. `delivered`: it computes no more, and clients have consumed
    every element or dropped it. `dropped`: elements sent to clients that were lost, in all.
    `computed`: its totals when it computes no more; the next heartbeat may come after its epoch.
    """

    task_id: int
    exhausted: bool = False
    delivered: bool = False
    dropped: int = 0
    computed: TaskReport | None = None


class WorkerDraining(Message, frozen=True, tag=True):
    """The worker will stop: it begins no tasks and no splits, and delivers what it has computed."""


class WorkerLeave(Message, frozen=True, tag=True):
    """The worker stops, so its lease need not expire.

    `undelivered`: the number of elements that are lost with each task that computes no more.
    `computed`: the totals of the tasks that have computed anything since the last heartbeat.
    """

    undelivered: dict[int, int] = {}
    computed: dict[int, TaskReport] = {}


# ── dispatcher → worker ──────────────────────────────────────────────────────────────────────────
class WorkerWelcome(Message, frozen=True, tag=True):
    """The session is open. If `worker_id` or `journal_id` differs from the hello's: drop all tasks.

    `journaled`: a restarted dispatcher goes on, so that it is worth waiting for.
    """

    protocol: int
    worker_id: int
    journal_id: str
    heartbeat_ms: int
    key: bytes = b""
    journaled: bool = False


class TaskStart(Message, frozen=True, tag=True):
    """Run the dataset for one iteration.

    `split_sources` is ``None`` unless the dispatcher assigns splits; `buffer` decides which client
    gets which element; `key` proves which client may read it (`reader_key`). Of the calls of user
    functions, `traced` ones are recorded one by one, `suspects` run alone, and `poisoned` ones are
    replaced by an error. `shard`: what to read under static sharding. `job` is for the log. In a
    coordinated read, `absent` are the indexes of consumers that have left, and the end of the data
    is an error unless `finite_coordinated`.
    """

    task_id: int
    iteration_id: int
    dataset_id: str
    seed: int
    epoch: tuple[int, ...]
    split_sources: list[SplitSource] | None = None
    buffer: BufferPolicy = BufferPolicy.FIRST_COME
    key: bytes = b""
    traced: list[CallRange] = []
    suspects: list[CallRange] = []
    poisoned: list[PoisonedCall] = []
    shard: Shard | None = None
    job: str = ""
    num_consumers: int = 0
    absent: list[int] = []
    finite_coordinated: bool = False


class Drain(Message, frozen=True, tag=True):
    """Begin no tasks and no splits, deliver computed elements, then leave: an operator asks.

    Workers whose hello has no `version` do not know this message.
    """


class TaskStop(Message, frozen=True, tag=True):
    """Stop the task: no client reads it any more."""

    task_id: int


class ListSplits(Message, frozen=True, tag=True):
    """Send the page of a source's splits from position `start` on.

    The worker lists them when it is first asked, and keeps the list until `StopListing`.
    `in_order`: in the order in which static shards divide them.
    """

    listing_id: int
    dataset_id: str
    seed: int
    epoch: tuple[int, ...]
    source: int
    start: int = 0
    in_order: bool = False


class StopListing(Message, frozen=True, tag=True):
    """Drop a list of splits: all pages have arrived, or nobody needs them."""

    listing_id: int


class SplitGrant(Message, frozen=True, tag=True):
    """Answer to `SplitRequest`.

    `begun` splits may be read, `refused` ones may not; `splits` are assigned but not begun; `end`:
    all splits are begun.
    """

    task_id: int
    source: int
    source_epoch: int
    begun: list[int] = []
    refused: list[int] = []
    splits: list[tuple[int, Any]] = []
    end: bool = False


class ShardPage(Message, frozen=True, tag=True):
    """Answer to `ShardRequest`; `end`: no more follow."""

    task_id: int
    source: int
    start: int
    values: list[Any]
    end: bool


class ReturnSplits(Message, frozen=True, tag=True):
    """Splits that are assigned to the task, and not announced, are available to others."""

    task_id: int


class ClientReleased(Message, frozen=True, tag=True):
    """The client was released.

    `consumed` has the values of `GiveBack` from a client that closed: ``(frame, elements of it)``;
    the rest is for other clients. Without `consumed` the rest is dropped and counted as lost, or
    kept for the next consumer with `consumer_index`.
    """

    task_id: int
    client_id: int
    consumed: tuple[int, int] | None = None
    consumer_index: int | None = None


# ── supervisor → dispatcher ──────────────────────────────────────────────────────────────────────
class SupervisorHello(Message, frozen=True, tag=True):
    """First message of a process that runs workers in child processes."""

    protocol_min: int
    protocol_max: int


class KeepAlive(Message, frozen=True, tag=True):
    """Renew the leases of active child processes, even if a function holds the GIL of one.

    `workers` maps the id of each to its key.
    """

    workers: dict[int, bytes]


class WorkerDied(Message, frozen=True, tag=True):
    """A child process died; `how` completes "worker ... was lost: ", `key` is the worker's.

    `calls`: the calls of user functions in flight, by task, if they may be the cause. `alone`: the
    digest of the element of the only one, if that ran alone.
    """

    worker_id: int
    how: str
    key: bytes
    calls: dict[int, list[CallRange]] = {}
    alone: int = NO_DIGEST


# ── dispatcher → supervisor ──────────────────────────────────────────────────────────────────────
class SupervisorWelcome(Message, frozen=True, tag=True):
    """The session is open; send `KeepAlive` every `heartbeat_ms`, for leases of `lease_ms`."""

    protocol: int
    journal_id: str
    heartbeat_ms: int
    lease_ms: int


# ── client → dispatcher ──────────────────────────────────────────────────────────────────────────
class ClientHello(Message, frozen=True, tag=True):
    """First message of a client: read this epoch of this job; both are created if missing.

    With `client_id` the client resumes its session, and `key` is that of its `ClientWelcome`.
    Without, `key` is the one that the client chooses: a hello whose answer was lost is recognized
    by it. `process` identifies workers in the same process. `registration` names the dataset in
    place of `dataset_id`, at first without its tree. `consumer_index`: of a coordinated read.
    `reason`: why the last session ended.
    """

    protocol_min: int
    protocol_max: int
    dataset_id: str
    job: str
    parameters: JobParameters
    epoch: tuple[int, ...] = ()
    named: bool = False
    process: str = ""
    client_id: int | None = None
    journal_id: str = ""
    registration: "RegisterDataset | None" = None
    key: bytes = b""
    consumer_index: int | None = None
    reason: str = ""


class TaskRead(Message, frozen=True, tag=True):
    """The client has received the end of a task."""

    task_id: int


class TaskLeft(Message, frozen=True, tag=True):
    """The client has left a task as it was asked; `consumed` has the values of `GiveBack`."""

    task_id: int
    reader_id: int
    consumed: tuple[int, int]


class ClientClose(Message, frozen=True, tag=True):
    """The iterator was closed: release the client.

    `consumed` has the values of `GiveBack` for each task, which may be lost with its connection.
    `position`: of a consumer of a coordinated read.
    """

    consumed: dict[int, tuple[int, int]] = {}
    position: RoundPosition | None = None


class RoundReached(Message, frozen=True, tag=True):
    """The position of a consumer, in answer to the `hold` of `Rounds`, or unasked.

    `hold` is 0 if it is unasked: it is `ready` to start, has passed all rounds that it knows
    (`at_end`), or has yielded `owed` elements less than the others. `received` is the number of
    runs that it has received of each lost task.
    """

    hold: int
    position: RoundPosition
    received: dict[int, int] = {}
    owed: int = 0
    at_end: bool = False
    ready: bool = False


# ── dispatcher → client ──────────────────────────────────────────────────────────────────────────
class ClientWelcome(Message, frozen=True, tag=True):
    """The session is open; `warning` is for the user.

    `compression` is that of the client's own registration, for its hello to workers; sent to a new
    client only. `dispatcher_patience_ms`: how long the client waits for the dispatcher when it
    cannot be reached; 0 if it keeps no journal, so that waiting has no use.
    """

    protocol: int
    client_id: int
    iteration_id: int
    journal_id: str
    heartbeat_ms: int
    warning: str = ""
    compression: str | None = None
    key: bytes = b""
    dispatcher_patience_ms: int = 0


class DatasetUnknown(Message, frozen=True, tag=True):
    """The dataset of the `ClientHello` is not registered: send the hello again with the tree."""


class Tasks(Message, frozen=True, tag=True):
    """Changes of the client's tasks.

    `leave`, task → reader id: receive no more, consume what has arrived, and send `TaskLeft`.
    `computed`: none computes, and none will be added unless one is lost that clients have not read
    to its end. `shared`: another client has opened the iteration too. `warning` is for the user.
    `absent` names the workers that have not registered and whose shards the client waits for.
    """

    added: list[TaskInfo] = []
    leave: dict[int, int] = {}
    lost: list[TaskLost] = []
    dropped: list[ElementsDropped] = []
    computed: bool = False
    shared: bool = False
    warning: str = ""
    absent: str = ""


class Rounds(Message, frozen=True, tag=True):
    """New changes of the schedule of a coordinated read.

    `hold`: not 0 while the next change is being agreed on: pass no more slots than have been
    passed, and answer with `RoundReached`. `ended`: tasks of which nothing is left.
    """

    changes: list[RoundsChange] = []
    hold: int = 0
    ended: list[int] = []


class ClientClosed(Message, frozen=True, tag=True):
    """Answer to `ClientClose` and `CloseClient`: the client is released."""


class DispatcherStopped(Message, frozen=True, tag=True):
    """The dispatcher ends and keeps no journal."""


# ── dispatcher → either ──────────────────────────────────────────────────────────────────────────
class HeartbeatInterval(Message, frozen=True, tag=True):
    """Send heartbeats at this interval from now on; it follows the number of leases."""

    heartbeat_ms: int


class Refused(Message, frozen=True, tag=True):
    """The session or the whole iteration has failed."""

    error: ErrorRecord


# ── calls ────────────────────────────────────────────────────────────────────────────────────────
class Function(msgspec.Struct, frozen=True):
    """A user function of a dataset: the line that uses it, and its `code_digest`."""

    site: str
    digest: str


class RegisterDataset(Message, frozen=True, tag=True):
    """Register a dataset. Without `tree`: ask whether the digest is registered.

    `structure` and `functions` describe the tree to a job that exists, which does not need it.
    `file_sources` are the sources with the splits that shards of their files have.
    """

    digest: str
    tree: bytes = b""
    spec: Any = None
    options: Options = Options()
    sources: list[Source] = []
    runs_python: bool = False
    versions: Versions = Versions("", "")
    compression: str | None = "AUTO"
    dataset_id: str = ""
    size: int = UNKNOWN_CARDINALITY
    structure: bytes = b""
    functions: list[Function] = []
    file_sources: list[Source] = []


class DatasetRegistered(Message, frozen=True, tag=True):
    """The id of the registered dataset; empty if the tree is needed."""

    dataset_id: str


class GetDataset(Message, frozen=True, tag=True):
    """Get a dataset; clients of `from_dataset_id` do not need its tree."""

    dataset_id: str
    with_tree: bool = True


class DatasetReply(Message, frozen=True, tag=True):
    """A registered dataset; `spec` is its element_spec in wire form, `size` its cardinality."""

    tree: bytes
    spec: Any
    options: Options
    size: int
    compression: str | None


class GetCluster(Message, frozen=True, tag=True):
    """Get the addresses of the workers."""


class ClusterReply(Message, frozen=True, tag=True):
    """The addresses of the registered workers."""

    workers: list[str]


class Probe(Message, frozen=True, tag=True):
    """Get the versions and the clock of the dispatcher, and the places of its workers."""


class WorkerPlace(msgspec.Struct, frozen=True):
    """A registered worker, as it advertises itself; a `draining` one gets no more tasks."""

    worker_id: int
    address: str
    data_transfer_addresses: dict[str, str]
    versions: Versions
    draining: bool = False


class ProbeReply(Message, frozen=True, tag=True):
    """The dispatcher's range of protocol versions, its version of stoker, and its clock.

    `clock` is in seconds since 1970. `journaled`: a restarted dispatcher goes on.
    """

    protocol_min: int
    protocol_max: int
    stoker: str
    clock: float
    workers: list[WorkerPlace] = []
    journaled: bool = False


class CloseClient(Message, frozen=True, tag=True):
    """Release a client, as `ClientClose` does; for one whose session is broken.

    `journal_id` and `key` are those of its `ClientWelcome`.
    """

    client_id: int
    journal_id: str
    key: bytes
    consumed: dict[int, tuple[int, int]] = {}
    position: RoundPosition | None = None


class GetStatus(Message, frozen=True, tag=True):
    """Get the state of the service; it changes nothing.

    With `job` only that job, with its tasks; with `dataset_id` only that dataset, with its details.
    """

    job: str = ""
    dataset_id: str = ""


class StatusReply(Message, frozen=True, tag=True):
    """The state of the service."""

    status: Status


class CancelJob(Message, frozen=True, tag=True):
    """Remove a job: its tasks stop, and the next read of each of its clients raises."""

    job: str


class ForgetDataset(Message, frozen=True, tag=True):
    """Remove a registered dataset that no job reads."""

    dataset_id: str


class DrainWorker(Message, frozen=True, tag=True):
    """Let the worker at an address drain and leave."""

    worker: str


class Done(Message, frozen=True, tag=True):
    """The dispatcher has done what an operator asked for; `text` says what."""

    text: str


class Failed(Message, frozen=True, tag=True):
    """The call failed."""

    error: ErrorRecord


FromWorker: TypeAlias = (
    WorkerHello
    | Heartbeat
    | SplitRequest
    | ShardRequest
    | SplitsPage
    | ListingFailed
    | TaskProgress
    | WorkerDraining
    | WorkerLeave
)
FromSupervisor: TypeAlias = SupervisorHello | KeepAlive | WorkerDied
FromClient: TypeAlias = ClientHello | Heartbeat | TaskRead | TaskLeft | RoundReached | ClientClose
ToDispatcher: TypeAlias = FromWorker | FromSupervisor | FromClient
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
ToClient: TypeAlias = (
    ClientWelcome | DatasetUnknown | Tasks | Rounds | ClientClosed | DispatcherStopped
)
FromDispatcher: TypeAlias = ToWorker | SupervisorWelcome | ToClient | HeartbeatInterval | Refused
Request: TypeAlias = (
    RegisterDataset
    | GetDataset
    | GetCluster
    | Probe
    | CloseClient
    | GetStatus
    | CancelJob
    | ForgetDataset
    | DrainWorker
)
Reply: TypeAlias = (
    DatasetRegistered
    | DatasetReply
    | ClusterReply
    | ProbeReply
    | ClientClosed
    | StatusReply
    | Done
    | Failed
)
