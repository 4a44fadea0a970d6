"""The worker without I/O: what dispatcher, clients and pipelines say in, actions out.

The shell (`server.py`) carries out actions and reports what happens. A *connection* is the shell's
number for one data connection. All methods return the actions to carry out, in order.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stoker.errors import FailedPreconditionError, NotFoundError, StokerError, to_record
from stoker.service import messages as m
from stoker.service.worker.buffer import FirstCome, Piece
from stoker.service.worker.reading import Reading
from stoker.service.worker.splits import SplitQueue
from stoker.wire import frames as f

FRAME_BYTES = 1 << 20
"""A frame holds about so many bytes at most (or one element)."""

FRAME_ELEMENTS = 8192
"""A frame holds so many elements at most: enough to make the cost of a frame vanish."""

BUFFER_ELEMENTS = 16 * FRAME_ELEMENTS
"""A task computes so many elements ahead at most, however small they are."""

PARKED_SECONDS = 10.0
"""A client may know of a task before its worker does; its connection waits so long for the task."""


@dataclass(frozen=True)
class ToDispatcher:
    """Say `message` on the session; it is dropped if the session is broken."""

    message: m.FromWorker


@dataclass(frozen=True)
class ToClient:
    """Send `message` on a data connection."""

    connection: int
    message: f.Message


@dataclass(frozen=True)
class HangUp:
    """Close a data connection, after what was sent on it."""

    connection: int


@dataclass(frozen=True)
class OpenTask:
    """Open the task's pipeline and begin to produce."""

    start: m.TaskStart


@dataclass(frozen=True)
class CloseTask:
    """Close the task's pipeline."""

    task_id: int


@dataclass(frozen=True)
class Produce:
    """The task's buffer has room again."""

    task_id: int


@dataclass(frozen=True)
class GiveSplit:
    """Hand a waiting source what it reads next; `split` is ``[]`` at the end, else one value."""

    task_id: int
    source: int
    repetition: int
    split: list[Any]


@dataclass(frozen=True)
class ListSources:
    """List the splits that `request` asks for and report them."""

    request: m.ListSplits


@dataclass(frozen=True)
class SetHeartbeat:
    """Send a heartbeat at least so often."""

    milliseconds: int


Action: TypeAlias = (
    ToDispatcher
    | ToClient
    | HangUp
    | OpenTask
    | CloseTask
    | Produce
    | GiveSplit
    | ListSources
    | SetHeartbeat
)


@dataclass
class Task:
    """One iteration's work here."""

    start: m.TaskStart
    buffer: FirstCome = field(default_factory=FirstCome)
    readings: dict[int, Reading] = field(default_factory=dict)
    queues: dict[tuple[int, int], SplitQueue] = field(default_factory=dict)
    exhausted: bool = False
    full: bool = False
    lost: int = 0


class Worker:
    """Runs tasks and serves what they produce.

    Args:
        hello: how this worker presents itself to the dispatcher.
        buffer_bytes: how much a task computes ahead of its readers, about.
    """

    def __init__(self, hello: m.WorkerHello, buffer_bytes: int) -> None:
        self.tasks: dict[int, Task] = {}
        self._hello = hello
        self._buffer_bytes = buffer_bytes
        self._worker_id: int | None = None
        self._journal_id = ""
        self._in_session = False
        self._connections: dict[int, tuple[int, int]] = {}
        self._parked: dict[int, tuple[f.Hello, float]] = {}
        self._actions: list[Action] = []

    # ── the session ───────────────────────────────────────────────────────────────────────────────
    def session_opened(self) -> list[Action]:
        """The dispatcher was reached, for the first time or again."""
        hello = m.WorkerHello(
            self._hello.protocol_min,
            self._hello.protocol_max,
            self._hello.address,
            self._hello.transfers,
            self._hello.versions,
            self._hello.tags,
            self._worker_id,
            self._journal_id,
            list(self.tasks),
        )
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
        elif isinstance(message, m.ClientGone):
            self._client_gone(message)
        return self._take_actions()

    def _welcome(self, welcome: m.WorkerWelcome) -> None:
        if self._worker_id is not None and welcome.worker_id != self._worker_id:
            for task_id in list(self.tasks):
                self._stop(task_id, "the dispatcher had given up this worker; it starts over")
        self._worker_id, self._journal_id = welcome.worker_id, welcome.journal_id
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
        self.tasks[start.task_id] = Task(start)
        self._do(OpenTask(start))
        for connection, (hello, _) in list(self._parked.items()):
            if hello.task_id == start.task_id:
                del self._parked[connection]
                self._open(connection, hello, now)

    def _stop(self, task_id: int, why: str) -> None:
        task = self.tasks.pop(task_id, None)
        if task is None:
            return
        self._do(CloseTask(task_id))
        for reading in task.readings.values():
            if reading.connection is not None:
                self._dismiss(reading.connection, NotFoundError(why))

    def _client_gone(self, message: m.ClientGone) -> None:
        task = self.tasks.get(message.task_id)
        reading = task.readings.pop(message.client_id, None) if task is not None else None
        if task is not None and reading is not None:
            task.lost += reading.kept_positions
            if reading.connection is not None:
                self._dismiss(reading.connection, NotFoundError("the client was released"))

    # ── splits ────────────────────────────────────────────────────────────────────────────────────
    def need_split(self, task_id: int, source: int, repetition: int, now: float) -> list[Action]:
        """A source of the task's pipeline waits for its next split."""
        task = self.tasks.get(task_id)
        if task is None:
            self._do(GiveSplit(task_id, source, repetition, []))
        else:
            key = (source, repetition)
            if key not in task.queues:
                task.queues[key] = SplitQueue(task_id, source, repetition)
            queue = task.queues[key]
            self._say(queue.need(now))
            self._serve_source(queue, now)
        return self._take_actions()

    def _granted(self, grant: m.SplitGrant, now: float) -> None:
        task = self.tasks.get(grant.task_id)
        queue = task.queues.get((grant.source, grant.repetition)) if task is not None else None
        if queue is not None:
            self._say(queue.granted(grant))
            self._serve_source(queue, now)

    def _serve_source(self, queue: SplitQueue, now: float) -> None:
        split = queue.take(now)
        if split is not None:
            self._do(GiveSplit(queue.task_id, queue.source, queue.repetition, split))

    def splits_listed(self, answer: m.SplitsListed) -> list[Action]:
        """The shell has listed what a `ListSources` asked for."""
        self._say(answer)
        return self._take_actions()

    # ── production ────────────────────────────────────────────────────────────────────────────────
    def produced(self, task_id: int, piece: Piece) -> list[Action]:
        """The task's pipeline produced; ask `may_produce` whether to go on."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.buffer.put(piece)
            self._pump(task)
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
        """Whether the pipeline shall go on; if not, a `Produce` or `CloseTask` action follows later."""
        task = self.tasks.get(task_id)
        if task is None:
            return False
        buffer = task.buffer
        task.full = buffer.nbytes >= self._buffer_bytes or buffer.positions >= BUFFER_ELEMENTS
        return not task.full

    # ── clients ───────────────────────────────────────────────────────────────────────────────────
    def client_message(self, connection: int, message: f.Message, now: float) -> list[Action]:
        """A client says something on a data connection."""
        if isinstance(message, f.Hello):
            self._open(connection, message, now)
        elif (found := self._reading_of(connection)) is not None:
            task, reading = found
            if isinstance(message, f.Credit):
                reading.credit(message)
            elif isinstance(message, f.GiveBack):
                self._give_back(task, reading, message)
            elif isinstance(message, f.Bye):
                self._dismiss(connection, None)
            self._pump(task)
        return self._take_actions()

    def client_lost(self, connection: int) -> list[Action]:
        """A data connection broke. What was sent on it is kept: the client may come back."""
        self._parked.pop(connection, None)
        found = self._reading_of(connection)
        if found is not None:
            found[1].connection = None
        self._connections.pop(connection, None)
        return self._take_actions()

    def tick(self, now: float) -> list[Action]:
        """Time passed: connections for tasks that never came are sent away."""
        for connection, (hello, until) in list(self._parked.items()):
            if now > until:
                del self._parked[connection]
                error = NotFoundError(f"task {hello.task_id} does not run on this worker")
                self._dismiss(connection, error)
        return self._take_actions()

    def _open(self, connection: int, hello: f.Hello, now: float) -> None:
        try:
            protocol = f.negotiate(hello.protocol_min, hello.protocol_max)
            task = self.tasks.get(hello.task_id)
            if task is None:
                self._parked[connection] = (hello, now + PARKED_SECONDS)
                return
            reading = task.readings.get(hello.client_id) or Reading(hello.client_id)
            if not reading.can_resume(hello.next_frame):
                raise FailedPreconditionError(
                    f"frame {hello.next_frame} of task {hello.task_id} is no longer kept"
                )
        except StokerError as error:
            self._dismiss(connection, error)
            return
        if reading.connection is not None:
            self._dismiss(reading.connection, FailedPreconditionError("the client connected again"))
        task.readings[hello.client_id] = reading
        self._connections[connection] = (hello.task_id, hello.client_id)
        self._do(ToClient(connection, f.Welcome(protocol, self._hello.address)))
        for frame in reading.connect(connection, hello.next_frame):
            self._do(ToClient(connection, frame))
        self._pump(task)

    def _give_back(self, task: Task, reading: Reading, message: f.GiveBack) -> None:
        task.buffer.give_back(reading.give_back(message.frame, message.taken))
        del task.readings[reading.client_id]
        assert reading.connection is not None
        self._dismiss(reading.connection, None)

    def _reading_of(self, connection: int) -> tuple[Task, Reading] | None:
        task_id, client_id = self._connections.get(connection, (-1, -1))
        task = self.tasks.get(task_id)
        reading = task.readings.get(client_id) if task is not None else None
        if task is None or reading is None or reading.connection != connection:
            return None
        return task, reading

    def _dismiss(self, connection: int, error: StokerError | None) -> None:
        self._connections.pop(connection, None)
        self._do(ToClient(connection, f.Bye(None if error is None else to_record(error))))
        self._do(HangUp(connection))

    # ── delivery ──────────────────────────────────────────────────────────────────────────────────
    def _pump(self, task: Task) -> None:
        """Sends what is ready to readers with room, one frame each in turn."""
        readings = [r for r in task.readings.values() if r.connection is not None]
        sending = True
        while sending and task.buffer.positions:
            sending = False
            for reading in readings:
                elements, nbytes = reading.room
                if elements > 0 and nbytes > 0 and task.buffer.positions:
                    piece = task.buffer.take(min(elements, FRAME_ELEMENTS), FRAME_BYTES)
                    self._to_reader(reading, reading.send(piece))
                    sending = True
        if len(readings) > 1:  # whoever was served first goes last next time
            first = readings[0]
            task.readings[first.client_id] = task.readings.pop(first.client_id)
        for reading in readings:
            self._tell(task, reading)
        if task.full and self.may_produce(task.start.task_id):
            self._do(Produce(task.start.task_id))

    def _tell(self, task: Task, reading: Reading) -> None:
        """What a reader should know besides its frames: the end, or that something waits."""
        if task.buffer.positions and not reading.announced:
            reading.announced = True
            self._to_reader(reading, f.Ready(task.buffer.positions))
        elif task.exhausted and not task.buffer.positions and not reading.ended:
            reading.ended = True
            self._to_reader(reading, f.End(reading.next_number))

    def _to_reader(self, reading: Reading, message: f.Message) -> None:
        assert reading.connection is not None
        self._do(ToClient(reading.connection, message))

    # ── mechanics ─────────────────────────────────────────────────────────────────────────────────
    def _say(self, message: m.FromWorker | None) -> None:
        if message is not None and self._in_session:
            self._do(ToDispatcher(message))

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _take_actions(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions
