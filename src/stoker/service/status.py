"""State of a running service, as the dispatcher answers `GetStatus`; ``stoker status --json``.

All are plain values. Rates are measured between the last two heartbeats of the sender, 0 if the
sender is silent; durations are in seconds. New fields are added at the end, with a default.
"""

import msgspec

from stoker.service.loading import Loading


class WorkerStatus(msgspec.Struct, frozen=True):
    """A registered worker.

    Attributes:
        address: address at which clients read, "host:port".
        connected: its session is open.
        silent_seconds: time since its lease was renewed, mostly by its last message.
        uptime: time since its process was started; ``None`` before its first heartbeat, or if its
            stoker does not send it.
        version: its version of stoker, or "" if unknown.
        draining: the worker begins nothing new, and will leave.
        tasks: the number of tasks of the worker.
        active_tasks: tasks that computed elements between the worker's last two heartbeats.
        shard: the shard that the worker reads under static sharding.
        shared_memory: the worker shares memory with trainers on its host.
        elements_per_second: elements computed.
        bytes_per_second: their bytes, about.
        loading: why the task that has waited longest for its functions has no element yet; ``None``
            if no task waits for its functions.
    """

    address: str
    connected: bool
    silent_seconds: float
    uptime: float | None
    version: str
    python: str
    numpy: str
    tags: list[str]
    data_transfer_addresses: dict[str, str]
    draining: bool
    tasks: int
    active_tasks: int
    shard: int | None
    shared_memory: bool
    elements_per_second: float
    bytes_per_second: float
    loading: Loading | None = None


class TaskStatus(msgspec.Struct, frozen=True):
    """The work of an epoch on a worker.

    Attributes:
        state: "running", "computed", "delivered", "stopped" or "lost".
        lost: the reason of its loss, or "".
        clients: the number of clients that read the task.
        elements: the number of elements computed, as far as heartbeats have said.
        bytes: the approximate bytes of these elements.
        errors: the number of errors that took the place of an element.
    """

    task_id: str
    worker: str
    state: str
    lost: str
    clients: int
    elements: int
    bytes: int
    errors: int
    elements_per_second: float
    bytes_per_second: float


class EpochStatus(msgspec.Struct, frozen=True):
    """An epoch of a job.

    Attributes:
        epoch: "3", or "3.0" in an outer and an inner repeat.
        state: "starting" (without tasks), "running", "computed" (clients read the rest),
            "finished", "stopped" (nobody reads) or "failed".
        error: the error of a failed epoch, or "".
        tasks: the number of its tasks.
        running_tasks: tasks that may compute another element.
        clients: the number of its clients.
        elements: the number of elements computed, as far as heartbeats have said; after a restart
            of the dispatcher, by the workers that are still registered.
        bytes: their bytes, about.
        errors: the number of errors that took the place of an element.
        tasks_lost: the number of tasks that were lost before their elements were delivered.
        splits_lost: the splits that lost tasks had begun, where the number of elements is unknown.
        elements_lost: the number of elements known to be lost, with workers or with clients.
        poisoned: the number of calls that are replaced by an error, because workers died.
        details: its tasks, if its job was asked for, and the epoch has not ended or is the latest.
    """

    epoch: str
    state: str
    error: str
    tasks: int
    running_tasks: int
    clients: int
    elements: int
    bytes: int
    errors: int
    elements_per_second: float
    bytes_per_second: float
    tasks_lost: int
    splits_lost: int
    elements_lost: int
    poisoned: int
    details: list[TaskStatus] = []


class ClientStatus(msgspec.Struct, frozen=True):
    """An iterator of a trainer process.

    Attributes:
        epoch: the epoch that the client reads, as of `EpochStatus`.
        connected: its session is open.
        silent_seconds: time since its lease was renewed, mostly by its last message.
        consumer_index: its index in a coordinated read.
        tasks: the number of tasks that the client reads.
        elements: the number of elements consumed, as far as heartbeats have said.
        bytes: the approximate bytes of these elements.
        waiting: the share of the time between its last two heartbeats in which the client waited
            for elements, from 0 to 1; ``None`` if unknown.
        bottleneck: the kind of what is slow, or "" if unknown.
        sentence: what is slow, as a sentence, or "".
        position: in a deterministic epoch, the position that the client consumes next; ``None`` in
            other modes.
    """

    client_id: str
    epoch: str
    connected: bool
    silent_seconds: float
    consumer_index: int | None
    tasks: int
    elements: int
    bytes: int
    elements_per_second: float
    bytes_per_second: float
    waiting: float | None
    bottleneck: str
    sentence: str
    position: int | None = None


class JobStatus(msgspec.Struct, frozen=True):
    """A dataset with a processing mode and a name, that clients read.

    Attributes:
        named: the name was given by a user, and is not random.
        processing_mode: name of the `ShardingPolicy`.
        target_workers: "AUTO", "LOCAL" or "ANY".
        num_consumers: the number of consumers of a coordinated read.
    """

    name: str
    named: bool
    dataset_id: str
    processing_mode: str
    target_workers: str
    num_consumers: int | None
    cross_trainer_cache: bool
    epochs: list[EpochStatus]
    clients: list[ClientStatus]


class DatasetDetails(msgspec.Struct, frozen=True):
    """A dataset as registered.

    Attributes:
        tree: its nodes as lines of text, each with the user's line.
        element_spec: its element_spec, as text.
        options: its options, by name.
        functions: lines of the user's file with a function.
        python: the Python minor version that its functions need.
        numpy: the NumPy major version that its functions need.
    """

    tree: list[str]
    element_spec: str
    options: dict[str, object]
    functions: list[str]
    python: str
    numpy: str


class DatasetStatus(msgspec.Struct, frozen=True):
    """A registered dataset.

    Attributes:
        kept: registered by `register_dataset`; any other dataset is removed with its last job.
        cardinality: the number of elements; -1 if infinite, -2 if unknown.
        tree_bytes: the size of its tree; 0 if dropped, because no job needed the tree for long.
        compression: as given to `distribute` or `register_dataset`.
        jobs: the names of the jobs that read the dataset.
        details: only if asked for.
    """

    dataset_id: str
    kept: bool
    cardinality: int
    tree_bytes: int
    compression: str | None
    jobs: list[str]
    details: DatasetDetails | None = None


class EventStatus(msgspec.Struct, frozen=True):
    """A loss, a failure or the end of a worker, as in the dispatcher's log.

    Attributes:
        seconds_ago: time since then.
        level: "INFO", "WARNING" or "ERROR".
    """

    seconds_ago: float
    level: str
    text: str
    worker: str = ""
    job: str = ""
    epoch: str = ""


class Status(msgspec.Struct, frozen=True):
    """State of a running service.

    Attributes:
        version: the dispatcher's version of stoker.
        uptime: time since the dispatcher was started.
        journaled: a restarted dispatcher goes on with the state of this dispatcher.
        workers: by address.
        jobs: by name.
        datasets: by id.
        events: the latest losses and failures since the dispatcher was started, oldest first.
    """

    version: str
    uptime: float
    journaled: bool
    workers: list[WorkerStatus]
    jobs: list[JobStatus]
    datasets: list[DatasetStatus]
    events: list[EventStatus]
