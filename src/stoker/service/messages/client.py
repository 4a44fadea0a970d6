"""Messages of a client's session: first those that it sends, then those that it receives."""

from typing import TypeAlias

import msgspec

from stoker.service.messages.coordinated import RoundPosition, RoundReached, Rounds
from stoker.service.messages.datasets import RegisterDataset
from stoker.service.messages.deterministic import Draws
from stoker.service.messages.session import (
    Count,
    DispatcherMessage,
    Heartbeat,
    JournalPosition,
    Message,
)
from stoker.service.messages.tasks import ElementsDropped, JobParameters, TaskInfo, TaskLost


class CopyTime(msgspec.Struct, frozen=True):
    """Time at which the reader's copy of the dataset was made, by fork or unpickling.

    `age`: the seconds since then, infinite for the original. `at`: the time on the monotonic clock
    of `host`, as `host_id` returns.
    """

    age: float
    host: str = ""
    at: float = 0.0


# No call precedes the tasks: a separate registration would need a second connection and 3.5 ms of
# Python for every `iter()`. (docs/decisions/002)
class ClientHello(Message, frozen=True, tag=True):
    """First message of a client: read this epoch of this job; both are created if missing.

    With `client_id` the client resumes its session, and `key` is that of its `ClientWelcome`.
    Without, `key` is the one that the client chooses: a hello whose answer was lost is recognized
    by it. `process` identifies workers in the same process. `registration` names the dataset in
    place of `dataset_id`, at first without its tree. `consumer_index`: of a coordinated read or a
    deterministic epoch. `reason`: why the last session ended. `copied`: only for the first epoch
    that a copy of the dataset reads, and if the user did not choose the epoch. `draws`: of a
    deterministic epoch.
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
    registration: RegisterDataset | None = None
    key: bytes = b""
    consumer_index: int | None = None
    reason: str = ""
    copied: CopyTime | None = None
    journal_position: JournalPosition | None = None
    draws: Draws | None = None


class TaskRead(Message, frozen=True, tag=True):
    """The client has received the end of a task."""

    task_id: int


# All computed is not all consumed: another client may close and give elements back.
# (docs/decisions/063)
class ReadToEnd(Message, frozen=True, tag=True):
    """The client has read all that is left for it; the dispatcher answers with `EndState`."""


class TaskLeft(Message, frozen=True, tag=True):
    """The client has left a task as it was asked; `consumed` has the values of `GiveBack`."""

    task_id: int
    reader_id: int
    consumed: tuple[Count, Count]


# Positions are given to the dispatcher too: the data connection may be the part that is broken.
class ClientClose(Message, frozen=True, tag=True):
    """The iterator was closed: release the client.

    `consumed` has the values of `GiveBack` for each task, which may be lost with its connection.
    `position`: of a consumer of a coordinated read.
    """

    consumed: dict[int, tuple[Count, Count]] = {}
    position: RoundPosition | None = None


class ClientWelcome(DispatcherMessage, frozen=True, tag=True):
    """The session is open; `warning` is for the user.

    `compression` is that of the client's own registration, for its hello to workers; sent to a new
    client only. `dispatcher_patience_ms`: how long the client waits for the dispatcher when it
    cannot be reached; 0 if it keeps no journal, so that waiting has no use. `length`: the number of
    positions of a deterministic epoch.
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
    length: int | None = None


class DatasetUnknown(DispatcherMessage, frozen=True, tag=True):
    """The dataset of the `ClientHello` is not registered: send the hello again with the tree."""


# The same message for a change and for all tasks, so that a new session needs no other rule.
class Tasks(DispatcherMessage, frozen=True, tag=True):
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


class EndState(DispatcherMessage, frozen=True, tag=True):
    """Answer to `ReadToEnd`: who may still hold elements of the iteration.

    `final`: all elements were consumed, or are counted as lost. `held`: other clients may hold
    some. `silent_ms`: the time until the leases end of those of them that do not answer; 0 if all
    of them answer.
    """

    final: bool
    held: bool = False
    silent_ms: int = 0


class ClientClosed(DispatcherMessage, frozen=True, tag=True):
    """Answer to `ClientClose` and `CloseClient`: the client is released."""


class DispatcherStopped(DispatcherMessage, frozen=True, tag=True):
    """The dispatcher ends and keeps no journal."""


FromClient: TypeAlias = (
    ClientHello | Heartbeat | TaskRead | ReadToEnd | TaskLeft | RoundReached | ClientClose
)
ToClient: TypeAlias = (
    ClientWelcome | DatasetUnknown | Tasks | Rounds | EndState | ClientClosed | DispatcherStopped
)
