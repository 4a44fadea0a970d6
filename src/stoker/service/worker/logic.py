"""The worker without I/O: what dispatcher, clients and pipelines say in, actions out.

The shell (`shell.py`) carries out actions and reports what happens. A *connection* is the shell's
number for one data connection. All methods return the actions to carry out, in order.
"""

import msgspec

from stoker.errors import (
    FailedPreconditionError,
    NotFoundError,
    StokerError,
    UnavailableError,
    to_record,
)
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.worker.actions import (
    Action,
    CloseTask,
    GiveSplit,
    HangUp,
    ListSources,
    OpenTask,
    Produce,
    SetHeartbeat,
    ToClient,
    ToDispatcher,
)
from stoker.service.worker.reader_state import ReaderState
from stoker.service.worker.splits import SplitQueue
from stoker.service.worker.task import FRAME_BYTES, FRAME_ELEMENTS, Task
from stoker.wire import frames as f

__all__ = [
    "FRAME_BYTES",
    "FRAME_ELEMENTS",
    "Action",
    "CloseTask",
    "GiveSplit",
    "HangUp",
    "ListSources",
    "OpenTask",
    "Produce",
    "SetHeartbeat",
    "Task",
    "ToClient",
    "ToDispatcher",
    "Worker",
]

PARKED_SECONDS = 10.0
"""A client may know of a task before its worker does; its connection waits so long for the task."""


class Worker:
    """Runs tasks and serves what they produce.

    Args:
        hello: how this worker presents itself to the dispatcher.
        buffer_bytes: how much a task computes ahead of its readers, and how much each reader may
            be sent ahead of its user, about.

    Attributes:
        tasks: by id.
        connections: those that read, with their task and client.
        parked: those whose task is not here yet, with their greeting and how long they wait.
    """

    def __init__(self, hello: m.WorkerHello, buffer_bytes: int) -> None:
        self.tasks: dict[int, Task] = {}
        self.connections: dict[int, tuple[int, int]] = {}
        self.parked: dict[int, tuple[f.Hello, float]] = {}
        self._hello = hello
        self._buffer_bytes = buffer_bytes
        self._in_session = False
        self._actions: list[Action] = []

    # ── the session ───────────────────────────────────────────────────────────────────────────────
    def session_opened(self) -> list[Action]:
        """The dispatcher was reached, for the first time or again."""
        readers = {task_id: list(task.readers) for task_id, task in self.tasks.items()}
        hello = msgspec.structs.replace(self._hello, tasks=list(self.tasks), readers=readers)
        self._do(ToDispatcher(hello))
        return self._take_actions()

    def session_lost(self) -> list[Action]:
        """The session broke. Tasks go on; clients read on."""
        self._in_session = False
        return self._take_actions()

    def session_message(self, message: m.FromDispatcher, now: float) -> list[Action]:
        """The dispatcher says something."""
        if isinstance(message, m.WorkerWelcome):
            self._welcome(message)
        elif isinstance(message, m.TaskStart):
            self._start(message, now)
        elif isinstance(message, m.TaskStop):
            self._stop(message.task_id, "nobody reads this task any more")
        elif isinstance(message, m.SplitGrant):
            self._granted(message, now)
        elif isinstance(message, m.ListSplits):
            self._do(ListSources(message))
        elif isinstance(message, m.ClientReleased):
            self._client_released(message)
        return self._take_actions()

    def _welcome(self, welcome: m.WorkerWelcome) -> None:
        if self._hello.worker_id not in (None, welcome.worker_id):
            for task_id in list(self.tasks):
                self._stop(task_id, "the dispatcher had given up this worker; it starts over")
        self._hello = msgspec.structs.replace(
            self._hello, worker_id=welcome.worker_id, journal_id=welcome.journal_id
        )
        self._in_session = True
        self._do(SetHeartbeat(welcome.heartbeat_ms))
        for task in self.tasks.values():
            for queue in task.queues.values():
                self._say(queue.reattach())
            if task.exhausted:
                self._say(m.TaskExhausted(task.start.task_id))

    def _start(self, start: m.TaskStart, now: float) -> None:
        if start.task_id in self.tasks:
            return
        self.tasks[start.task_id] = task = Task(start)
        self._do(OpenTask(start))
        if start.split_sources is not None and len(start.split_sources) == 1:
            # It will be read for certain, and first: while the pipeline is opened, its first split
            # can be had, which spares the first element two round trips.
            self._say(task.queue(start.split_sources[0].number, 0).ask())
        for connection, (hello, _) in list(self.parked.items()):
            if hello.task_id == start.task_id:
                del self.parked[connection]
                self._open(connection, hello, now)

    def _stop(self, task_id: int, why: str) -> None:
        task = self.tasks.pop(task_id, None)
        if task is None:
            return
        self._do(CloseTask(task_id))
        for reader in task.readers.values():
            self._dismiss(reader.connection, NotFoundError(why))

    def _client_released(self, message: m.ClientReleased) -> None:
        task = self.tasks.get(message.task_id)
        reader = task.readers.pop(message.client_id, None) if task is not None else None
        if task is None or reader is None:
            return
        if message.consumed is not None:
            task.buffer.give_back(message.client_id, reader.give_back(*message.consumed))
        else:
            task.lost += reader.kept_positions + reader.backlog.positions
        self._dismiss(reader.connection, NotFoundError("the client was released"))
        self._pump(task)

    # ── splits ────────────────────────────────────────────────────────────────────────────────────
    def need_split(self, task_id: int, source: int, source_epoch: int, now: float) -> list[Action]:
        """A source of the task's pipeline waits for its next split."""
        task = self.tasks.get(task_id)
        if task is None:
            self._do(GiveSplit(task_id, source, source_epoch, []))
        else:
            queue = task.queue(source, source_epoch)
            self._say(queue.need(now))
            self._serve_source(task, queue, now)
        return self._take_actions()

    def _granted(self, grant: m.SplitGrant, now: float) -> None:
        task = self.tasks.get(grant.task_id)
        queue = task.queues.get((grant.source, grant.source_epoch)) if task is not None else None
        if task is not None and queue is not None:
            self._say(queue.granted(grant))
            self._serve_source(task, queue, now)

    def _serve_source(self, task: Task, queue: SplitQueue, now: float) -> None:
        split = queue.take(now)
        if split is None:
            return
        self._do(GiveSplit(queue.task_id, queue.source, queue.source_epoch, split))
        if not split:
            del task.queues[queue.source, queue.source_epoch]
            done = m.SplitRequest(queue.task_id, queue.source, queue.source_epoch, done=True)
            self._say(done)

    def splits_listed(self, answer: m.SplitsListed) -> list[Action]:
        """The shell has listed what a `ListSources` asked for."""
        self._say(answer)
        return self._take_actions()

    # ── production ────────────────────────────────────────────────────────────────────────────────
    def produced(self, task_id: int, chunk: Chunk) -> list[Action]:
        """The task's pipeline produced; ask `may_produce` whether to go on."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.buffer.put(chunk)
            self._pump(task)
        return self._take_actions()

    def counted(self, task_id: int, counts: dict[str, int]) -> list[Action]:
        """What the task's pipeline has counted in all; readers hear of it with what comes next."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.counts = counts
        return self._take_actions()

    def exhausted(self, task_id: int) -> list[Action]:
        """The task's pipeline is at its end."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.exhausted = True
            self._say(m.TaskExhausted(task_id))
            self._pump(task)
        return self._take_actions()

    def may_produce(self, task_id: int) -> bool:
        """Whether the pipeline shall go on; if not, `Produce` or `CloseTask` follows later."""
        task = self.tasks.get(task_id)
        if task is None:
            return False
        task.full = not task.has_room(self._buffer_bytes)
        return not task.full

    # ── clients ───────────────────────────────────────────────────────────────────────────────────
    def client_message(self, connection: int, message: f.Message, now: float) -> list[Action]:
        """A client says something on a data connection."""
        if isinstance(message, f.Hello):
            self._open(connection, message, now)
        elif (found := self._reader_of(connection)) is not None:
            task, reader = found
            if isinstance(message, f.Credit):
                reader.credit(message)
            elif isinstance(message, f.GiveBack):
                rest = reader.give_back(message.frame, message.taken)
                task.buffer.give_back(reader.client_id, rest)
                del task.readers[reader.client_id]
                self._dismiss(connection, None)
            elif isinstance(message, f.Bye):
                reader.connection = None
                self._dismiss(connection, None)
            self._pump(task)
        return self._take_actions()

    def client_lost(self, connection: int) -> list[Action]:
        """A data connection broke. What was sent on it is kept: the client may come back."""
        self.parked.pop(connection, None)
        found = self._reader_of(connection)
        if found is not None:
            found[1].connection = None
        self.connections.pop(connection, None)
        return self._take_actions()

    def tick(self, now: float) -> list[Action]:
        """Time passed: connections for tasks that never came are sent away."""
        for connection, (hello, until) in list(self.parked.items()):
            if now > until:
                del self.parked[connection]
                error = NotFoundError(f"task {hello.task_id} does not run on this worker")
                self._dismiss(connection, error)
        return self._take_actions()

    def _open(self, connection: int, hello: f.Hello, now: float) -> None:
        try:
            protocol = f.negotiate(hello.protocol_min, hello.protocol_max)
            task = self.tasks.get(hello.task_id)
            if task is None:
                self.parked[connection] = (hello, now + PARKED_SECONDS)
                return
            reader = task.readers.get(hello.client_id)
            reader = reader or ReaderState(hello.client_id, self._buffer_bytes)
            _check_resumable(reader, hello)
        except StokerError as error:
            self._dismiss(connection, error)
            return
        self._dismiss(reader.connection, UnavailableError("the client connected again"))
        task.readers[hello.client_id] = reader
        reader.metered = hello.metered
        self.connections[connection] = (hello.task_id, hello.client_id)
        self._do(ToClient(connection, f.Welcome(protocol, self._hello.address, self._buffer_bytes)))
        reader.connect(connection, hello.attempt, hello.next_frame)
        self._pump(task)

    def _reader_of(self, connection: int) -> tuple[Task, ReaderState] | None:
        task_id, client_id = self.connections.get(connection, (-1, -1))
        task = self.tasks.get(task_id)
        reader = task.readers.get(client_id) if task is not None else None
        if task is None or reader is None or reader.connection != connection:
            return None
        return task, reader

    def _dismiss(self, connection: int | None, error: StokerError | None) -> None:
        if connection is None:
            return
        self.connections.pop(connection, None)
        self._do(ToClient(connection, f.Bye(None if error is None else to_record(error))))
        self._do(HangUp(connection))

    def _pump(self, task: Task) -> None:
        """Sends what can be sent, and lets the pipeline go on if that made room."""
        for reader, message in task.deliver():
            assert reader.connection is not None
            self._do(ToClient(reader.connection, message))
        if task.full and self.may_produce(task.start.task_id):
            self._do(Produce(task.start.task_id))

    # ── mechanics ─────────────────────────────────────────────────────────────────────────────────
    def _say(self, message: m.FromWorker | None) -> None:
        if message is not None and self._in_session:
            self._do(ToDispatcher(message))

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _take_actions(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions


def _check_resumable(reader: ReaderState, hello: f.Hello) -> None:
    """Checks that a client that connects can go on where it stopped.

    Raises:
        UnavailableError: a newer connection of the client was here first.
        FailedPreconditionError: what it wants is gone, because the client was released.
    """
    if hello.attempt <= reader.attempt:
        raise UnavailableError("the client has connected again since")
    if not reader.can_resume(hello.next_frame):
        raise FailedPreconditionError(
            f"frame {hello.next_frame} of task {hello.task_id} is no longer kept: this client was "
            "not heard of for too long and was released"
        )
