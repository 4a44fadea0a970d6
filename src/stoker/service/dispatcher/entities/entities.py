"""The parts of the dispatcher's state: workers, jobs, iterations, tasks and clients.

The fields of an entity are stored in snapshots and name other entities by their ids. `changes.add`
sets the attributes that follow from the fields of all entities, such as `TaskEntry.iteration`.
"""

import dataclasses

import msgspec

from stoker.errors import ErrorRecord
from stoker.service.dispatcher.entities.listed_values import ListedValues
from stoker.service.dispatcher.entities.places import Places
from stoker.service.dispatcher.entities.poison import PoisonSearch
from stoker.service.dispatcher.entities.registered import JobInfo, WorkerInfo
from stoker.service.dispatcher.modes.state import ModeState
from stoker.service.dispatcher.modes.states import AnyModeState
from stoker.service.messages import JobParameters, SplitSource

REMEMBERED_CODES = 1024
"""Most fingerprints of datasets that a job remembers: its ranks may all differ."""

REMEMBERED_CLIENTS = 1024
"""Most clients that have closed whose consumed positions an iteration remembers. They are for
workers that were disconnected at that time; of older clients, such a worker drops the rest."""


def _tag(name: str) -> str:
    return f"_{name.removesuffix('Entry')}"


class Entity(msgspec.Struct, array_like=True, dict=True, eq=False, tag=_tag):
    """Base of the entities in a snapshot; no record has a tag that begins with "_"."""


class JournalState(Entity, tag="_History"):
    """The journal that the state belongs to.

    Attributes:
        journal_id: identifies this history among those of other dispatchers; empty before `Booted`.
        ids_end: no id from here on was given.
        position: the number of units of the journal, snapshots included; each is one decision.
        position_key: signs positions.
        boots: each start of a dispatcher → the position before its first unit; the last
            `KEPT_BOOTS`.
        cancelled: key of a client whose job was cancelled → that job.
    """

    journal_id: str = ""
    ids_end: int = 0
    position: int = 0
    position_key: bytes = b""
    boots: dict[int, int] = {}
    cancelled: dict[bytes, str] = {}


class _WorkerLinks:
    tasks: dict[int, "TaskEntry"]


class WorkerEntry(Entity, _WorkerLinks):
    """A worker process.

    Attributes:
        draining: it will stop, and gets no more tasks and splits.
        tasks: the tasks that it keeps.
    """

    added: WorkerInfo
    draining: bool = False

    def __post_init__(self) -> None:
        self.tasks = {}


class _TaskLinks:
    iteration: "Iteration"
    worker: WorkerInfo


class TaskEntry(Entity, _TaskLinks, kw_only=True):
    """An iteration's work on a worker.

    Attributes:
        key: the keys of its readers are derived from this key.
        exhausted: its pipeline has ended.
        read: a client has received its end.
        delivered: the task computes no more, and all computed elements were consumed or dropped.
        dropped: the number of elements that were sent to clients that were lost.
        lost: the reason that the task can be read no more; empty while it can be read.
        splits_lost: the splits begun when the task was lost, if `elements_lost` is unknown.
        elements_lost: the elements that were lost with the task; ``None`` if unknown.
        poisoned_known: the number of poisoned calls that were known when the task was started.
        readers: client that reads the task → its reader id, until the task is over.
        leaving: client that was asked to leave, to be able to read more tasks → its reader id.
        iteration: the iteration with the id `iteration_id`.
        worker: the worker with the id `worker_id`, which may be lost.
    """

    task_id: int
    worker_id: int
    iteration_id: int
    seed: int
    key: bytes = b""
    exhausted: bool = False
    read: bool = False
    delivered: bool = False
    dropped: int = 0
    lost: str = ""
    splits_lost: int = 0
    elements_lost: int | None = None
    poisoned_known: int = 0
    readers: dict[int, int] = {}
    leaving: dict[int, int] = {}

    @property
    def running(self) -> bool:
        """True while the task may compute another element."""
        return not (self.exhausted or self.over)

    @property
    def over(self) -> bool:
        """True once no client will get another element of the task."""
        return self.delivered or bool(self.lost)

    def has_reader(self, client_id: int) -> bool:
        """Return whether a client reads the task, also one that was asked to leave it."""
        return client_id in self.readers or client_id in self.leaving

    @property
    def whole(self) -> bool:
        """True if clients can read the whole task, or have."""
        return self.exhausted and (self.read or self.delivered or not self.lost)


@dataclasses.dataclass
class TaskTally:
    """The numbers of tasks in each state.

    Attributes:
        running: tasks that may compute another element.
        open: tasks of which clients may get another element.
        exhausted: tasks whose pipelines have ended.
        whole: tasks that clients can read completely, or have.
        delivered: tasks whose computed elements were consumed or dropped.
        workers_wait: workers get a task when clients can read more.
    """

    running: int = 0
    open: int = 0
    exhausted: int = 0
    whole: int = 0
    delivered: int = 0
    workers_wait: bool = False

    def add(self, task: TaskEntry, sign: int = 1) -> None:
        """Count `task` in its present state; with `sign` -1, undo that before a change."""
        self.running += sign * task.running
        self.open += sign * (not task.over)
        self.exhausted += sign * task.exhausted
        self.whole += sign * task.whole
        self.delivered += sign * task.delivered


class _ClientLinks:
    iteration: "Iteration"
    tasks: dict[int, TaskEntry]


class ClientEntry(Entity, _ClientLinks, kw_only=True):
    """An iterator of a trainer process.

    Attributes:
        left_tasks: the tasks that the client has left. To read a left task again, the client needs
            another reader id.
        consumer_index: its index in a coordinated read.
        iteration: the iteration with the id `iteration_id`.
        tasks: the tasks that the client reads, until it has left also tasks that it is to leave.
    """

    client_id: int
    iteration_id: int
    process: str
    key: bytes = b""
    left_tasks: dict[int, None] = {}
    consumer_index: int | None = None

    def __post_init__(self) -> None:
        self.tasks = {}


class _JobLinks:
    iterations: dict[tuple[int, ...], "Iteration"]


class JobEntry(Entity, _JobLinks):
    """A dataset with a processing mode and a name.

    Attributes:
        dataset_id: the dataset that its tasks run.
        codes: the `jobs.fingerprint` of the datasets of its clients, the latest last.
        iterations: by epoch.
    """

    added: JobInfo
    dataset_id: str
    codes: dict[str, None] = {}

    def __post_init__(self) -> None:
        self.iterations = {}

    @property
    def has_clients(self) -> bool:
        """True if a client reads an epoch of the job."""
        return any(iteration.clients for iteration in self.iterations.values())

    @property
    def needs_tree(self) -> bool:
        """True if a worker may ask for the tree of its dataset."""
        return any(x.clients or x.has_running_tasks for x in self.iterations.values())

    def add_code(self, code: str) -> None:
        """Add the fingerprint of a client's dataset; drop the oldest of many."""
        # At the end again: the codes of processes that come back are kept.
        self.codes.pop(code, None)
        self.codes[code] = None
        if len(self.codes) > REMEMBERED_CODES:
            del self.codes[next(iter(self.codes))]


class _IterationLinks:
    job: JobEntry
    places: Places
    tasks: dict[int, TaskEntry]
    clients: dict[int, ClientEntry]
    by_worker: dict[int, TaskEntry]
    counts: TaskTally
    readings: int
    unread: dict[int, TaskEntry]
    damaged: dict[int, TaskEntry]


class Iteration(Entity, _IterationLinks, kw_only=True):
    """An epoch of a job.

    Attributes:
        mode_state: what only its mode has.
        sources: the sources whose splits are assigned to tasks; ``None`` until known.
        values: the values of the splits of listed sources.
        workers_wait: workers get a task when clients can read more.
        left: reader id of a client that has left or closed → the elements consumed of each task.
        clients_opened: the number of clients that have opened the iteration.
        poison: elements that end the processes of workers.
        computed: no task computes, and none will be added unless a task is lost before its end.
        finished: no client will get another element.
        stopped: its tasks have been stopped on their workers.
        job: the job with the name `job_name`.
        places: the workers that read the shards.
        by_worker: worker → its task, unless that is lost.
        counts: the numbers of its tasks in each state.
        readings: the number of pairs of an open task and a client that reads the task.
        unread: open tasks without a reader, in the order of waiting, the longest first.
        damaged: tasks that were lost, or whose elements were.
    """

    iteration_id: int
    job_name: str
    epoch: tuple[int, ...]
    seed: int
    mode_state: AnyModeState = msgspec.field(default_factory=ModeState)
    sources: dict[int, SplitSource] | None = None
    values: dict[int, ListedValues] = {}
    error: ErrorRecord | None = None
    workers_wait: bool = False
    left: dict[int, dict[int, tuple[int, int]]] = {}
    clients_opened: int = 0
    poison: PoisonSearch = msgspec.field(default_factory=PoisonSearch)
    computed: bool = False
    finished: bool = False
    stopped: bool = False

    def __post_init__(self) -> None:
        self.tasks, self.clients, self.by_worker = {}, {}, {}
        self.counts = TaskTally(workers_wait=self.workers_wait)
        self.readings = 0
        self.unread, self.damaged = {}, {}

    @property
    def parameters(self) -> JobParameters:
        """The parameters of its job."""
        return self.job.added.parameters

    @property
    def has_running_tasks(self) -> bool:
        """True if a task may compute another element."""
        return self.counts.running > 0 and not self.stopped

    @property
    def shared(self) -> bool:
        """True if several clients have opened the iteration."""
        return self.clients_opened > 1

    def count(self, task: TaskEntry, sign: int = 1) -> None:
        """Count `task` in its present state; with `sign` -1, undo that before a change."""
        self.counts.add(task, sign)
        if task.whole:
            self.mode_state.count_whole(task.worker.place, sign)

    def add_task(self, task: TaskEntry) -> None:
        """Add a task, with its readers."""
        self.tasks[task.task_id] = task
        self.count(task)
        if not task.lost:
            self.by_worker[task.worker_id] = task
        if task.lost or task.dropped:
            self.damaged[task.task_id] = task
        for client_id in (*task.readers, *task.leaving):
            self.clients[client_id].tasks[task.task_id] = task
        self.readings += len(task.readers)
        if not (task.readers or task.over or self.stopped):
            self.unread[task.task_id] = task

    def add_reader(self, task: TaskEntry, client: ClientEntry, reader_id: int) -> None:
        """Let a client read a task."""
        task.readers[client.client_id] = reader_id
        client.tasks[task.task_id] = task
        self.unread.pop(task.task_id, None)
        self.readings += 1

    def revoke_reader(self, task: TaskEntry, client_id: int) -> None:
        """Ask a client to leave a task."""
        task.leaving[client_id] = task.readers.pop(client_id)
        self.readings -= 1
        if not task.readers:
            self.unread[task.task_id] = task

    def remove_reader(
        self, task: TaskEntry, client: ClientEntry, consumed: tuple[int, int] | None
    ) -> None:
        """Remove a client from a task that is not over, and keep the client's position."""
        del client.tasks[task.task_id]
        if client.client_id in task.readers:
            self.revoke_reader(task, client.client_id)
        reader_id = task.leaving.pop(client.client_id)
        if consumed is not None and not self.stopped:
            self.left.setdefault(reader_id, {})[task.task_id] = consumed
            if len(self.left) > REMEMBERED_CLIENTS:
                del self.left[next(iter(self.left))]

    def remove_readers(self, task: TaskEntry) -> None:
        """Remove all clients from a task that is over."""
        for client_id in task.readers | task.leaving:
            self.clients[client_id].tasks.pop(task.task_id)
        self.unread.pop(task.task_id, None)
        self.readings -= len(task.readers)
        task.readers.clear()
        task.leaving.clear()
