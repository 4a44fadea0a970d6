"""The messages of the control plane: what workers and clients say to the dispatcher, and back.

Workers and clients each keep one *session* (a stream) open; `ToDispatcher` goes up, `ToWorker` and
`ToClient` come down. Questions without a session are *calls*: `Request` up, `Reply` down. All are
msgspec Structs, tagged by class name, encoded as msgpack. A split is ``(number, value)``: of an
index source the value is ``(start, stop)``, of a listed one what the listing worker said.
"""

import enum
from typing import Any, TypeAlias

import msgspec

from stoker.dataset.options import Options
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.dataset.tree.splits import Source
from stoker.errors import ErrorRecord
from stoker.service.config import ShardingPolicy

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1


class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What all control messages are."""


class Versions(msgspec.Struct, frozen=True):
    """What must match between who pickled a function and who runs it: "3.11" and "2"."""

    python: str
    numpy: str


class BufferPolicy(enum.Enum):
    """Which client of a task gets which of its elements."""

    FIRST_COME = "first_come"


class JobParameters(msgspec.Struct, frozen=True):
    """What all clients of one job must agree on, besides the dataset's structure."""

    processing_mode: ShardingPolicy
    target_workers: str = "AUTO"
    num_consumers: int | None = None
    use_cross_trainer_cache: bool = False


class TaskInfo(msgspec.Struct, frozen=True):
    """A task as a client needs it: where it is read.

    `data_transfer_addresses` maps a data transport's name to the worker's address on it.
    """

    task_id: int
    worker: str
    data_transfer_addresses: dict[str, str]
    tags: list[str] = []


class TaskLost(msgspec.Struct, frozen=True):
    """A task whose worker is gone; elements of the splits it had begun may be lost."""

    task_id: int
    worker: str
    why: str
    splits_begun: int = 0


class SplitSource(msgspec.Struct, frozen=True):
    """A source handed out in `splits` splits; `count` is its elements, if it is indexed."""

    number: int
    splits: int
    count: int | None = None


# ── worker → dispatcher ──────────────────────────────────────────────────────────────────────────
class WorkerHello(Message, frozen=True, tag=True):
    """First on a worker's session. With `worker_id`: it had one, and still runs `tasks`.

    `readers` are the clients it keeps something for, by task.
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


class Heartbeat(Message, frozen=True, tag=True):
    """The sender lives; keeps its lease."""


class SplitRequest(Message, frozen=True, tag=True):
    """`begin` is the notice that these splits will be read; `want` more are asked for.

    `least` of them even near the end, if there are so many: fewer would be read in no time.
    `done`: the source was told that there are no more, so nothing will be asked again.
    """

    task_id: int
    source: int
    source_epoch: int
    begin: list[int] = []
    want: int = 0
    least: int = 1
    done: bool = False


class SplitsListed(Message, frozen=True, tag=True):
    """The answer to `ListSplits`: values for each source, or why they cannot be listed."""

    iteration_id: int
    splits: dict[int, list[Any]] = {}
    error: ErrorRecord | None = None


class TaskExhausted(Message, frozen=True, tag=True):
    """The task has produced its last element (not all may be delivered yet)."""

    task_id: int


class WorkerLeave(Message, frozen=True, tag=True):
    """The worker stops: no need to wait for its lease."""


# ── dispatcher → worker ──────────────────────────────────────────────────────────────────────────
class WorkerWelcome(Message, frozen=True, tag=True):
    """The session is open. Another `worker_id` than was presented: start over, drop all tasks."""

    protocol: int
    worker_id: int
    journal_id: str
    heartbeat_ms: int


class TaskStart(Message, frozen=True, tag=True):
    """Run the dataset for one iteration.

    `split_sources` is ``None`` unless the dispatcher assigns splits; `buffer` decides which client
    gets which element.
    """

    task_id: int
    iteration_id: int
    dataset_id: str
    seed: int
    epoch: tuple[int, ...]
    split_sources: list[SplitSource] | None = None
    buffer: BufferPolicy = BufferPolicy.FIRST_COME


class TaskStop(Message, frozen=True, tag=True):
    """Nobody reads the task any more."""

    task_id: int


class ListSplits(Message, frozen=True, tag=True):
    """List the splits of these sources of the dataset; answer with `SplitsListed`."""

    iteration_id: int
    dataset_id: str
    seed: int
    epoch: tuple[int, ...]
    sources: list[int]


class SplitGrant(Message, frozen=True, tag=True):
    """`begun` may be read, `refused` may not; `splits` are assigned, not begun; `end`: no more."""

    task_id: int
    source: int
    source_epoch: int
    begun: list[int] = []
    refused: list[int] = []
    splits: list[tuple[int, Any]] = []
    end: bool = False


class ClientReleased(Message, frozen=True, tag=True):
    """The client was released. Without `taken`, what it had not consumed is dropped and counted.

    `taken` is what `GiveBack` says, from a client that closed: ``(frame, elements of it)``.
    """

    task_id: int
    client_id: int
    taken: tuple[int, int] | None = None


# ── supervisor → dispatcher ──────────────────────────────────────────────────────────────────────
class SupervisorHello(Message, frozen=True, tag=True):
    """First message of a process that runs workers in child processes."""

    protocol_min: int
    protocol_max: int


class KeepAlive(Message, frozen=True, tag=True):
    """Renew the leases of child processes that run, even if a function holds the GIL of one."""

    worker_ids: list[int]


class WorkerDied(Message, frozen=True, tag=True):
    """A child process died; `how` completes "worker ... was lost: "."""

    worker_id: int
    address: str
    how: str


# ── dispatcher → supervisor ──────────────────────────────────────────────────────────────────────
class SupervisorWelcome(Message, frozen=True, tag=True):
    """The session is open; send `KeepAlive` every `heartbeat_ms`."""

    protocol: int
    journal_id: str
    heartbeat_ms: int


# ── client → dispatcher ──────────────────────────────────────────────────────────────────────────
class ClientHello(Message, frozen=True, tag=True):
    """First on a client's session: read this epoch of this job, creating what is missing.

    With `client_id`: the session is taken up again. `process` tells workers in the same process.
    With `registration`, it says which dataset, in place of `dataset_id`; without its tree at first.
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


class ClientClose(Message, frozen=True, tag=True):
    """The iterator was closed: release the client.

    `taken` says for each task what `GiveBack` says: that message may be lost with its connection.
    """

    taken: dict[int, tuple[int, int]] = {}


# ── dispatcher → client ──────────────────────────────────────────────────────────────────────────
class ClientWelcome(Message, frozen=True, tag=True):
    """The session is open; `warning` is for the user.

    `compression` is what the client's own dataset was registered with, for its greetings to
    workers; said once, to a new client.
    """

    protocol: int
    client_id: int
    iteration_id: int
    journal_id: str
    heartbeat_ms: int
    warning: str = ""
    compression: str | None = None


class DatasetUnknown(Message, frozen=True, tag=True):
    """The dataset of the `ClientHello` is not registered: say it again, with the tree."""


class Tasks(Message, frozen=True, tag=True):
    """What changed: tasks to read, tasks lost, and whether no more will come."""

    added: list[TaskInfo] = []
    lost: list[TaskLost] = []
    finished: bool = False


# ── dispatcher → either ──────────────────────────────────────────────────────────────────────────
class Refused(Message, frozen=True, tag=True):
    """The session, or the whole iteration, cannot go on."""

    error: ErrorRecord


# ── calls ────────────────────────────────────────────────────────────────────────────────────────
class RegisterDataset(Message, frozen=True, tag=True):
    """Register a tree. Without `tree`: is this digest known already?"""

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


class DatasetRegistered(Message, frozen=True, tag=True):
    """The id to read it by; empty: not known, send the tree."""

    dataset_id: str


class GetDataset(Message, frozen=True, tag=True):
    """Workers ask for `tree`; clients of `from_dataset_id` for the rest only."""

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
    """Who is there?"""


class ClusterReply(Message, frozen=True, tag=True):
    """The addresses of the live workers."""

    workers: list[str]


class Failed(Message, frozen=True, tag=True):
    """The call failed."""

    error: ErrorRecord


FromWorker: TypeAlias = (
    WorkerHello | Heartbeat | SplitRequest | SplitsListed | TaskExhausted | WorkerLeave
)
FromSupervisor: TypeAlias = SupervisorHello | KeepAlive | WorkerDied
FromClient: TypeAlias = ClientHello | Heartbeat | ClientClose
ToDispatcher: TypeAlias = FromWorker | FromSupervisor | FromClient
ToWorker: TypeAlias = (
    WorkerWelcome | TaskStart | TaskStop | ListSplits | SplitGrant | ClientReleased
)
ToClient: TypeAlias = ClientWelcome | DatasetUnknown | Tasks
FromDispatcher: TypeAlias = ToWorker | SupervisorWelcome | ToClient | Refused
Request: TypeAlias = RegisterDataset | GetDataset | GetCluster
Reply: TypeAlias = DatasetRegistered | DatasetReply | ClusterReply | Failed
