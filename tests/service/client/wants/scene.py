"""A client of a deterministic epoch with model workers and time, without a network."""

import heapq
import itertools
import random
from collections.abc import Callable
from functools import partial

from stoker.errors import ErrorRecord, StokerError
from stoker.service import messages as m
from stoker.service.api.read_options import ReadOptions
from stoker.service.client import actions as a
from stoker.service.client import logic as c
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.service.rules.processing_modes import ShardingPolicy
from stoker.wire import frames as f

PARAMETERS = m.JobParameters(ShardingPolicy.DETERMINISTIC)
HELLO = m.ClientHello(
    1, 1, "", "job", PARAMETERS, (0,), registration=m.RegisterDataset("digest", b"tree")
)
TRIP = 0.0002


class ModelWorker:
    """Computes what is wanted, needed positions first, and checks each `Want`.

    Args:
        scene: the scene that it is in.
        number: of its task.
        seconds: of each element.
        nbytes: of each element.
        fails: positions that are errors.
    """

    def __init__(
        self, scene: "Scene", number: int, seconds: float, nbytes: int, fails: set[int]
    ) -> None:
        self.info = m.TaskInfo(number, f"host:{number}", {}, reader_id=40)
        self.seconds, self.nbytes, self.fails = seconds, nbytes, fails
        self.connection: int | None = None
        self.frozen = self.busy = False
        self.computed: list[int] = []
        self.messages = 0
        self.most_unread = 0
        self._scene = scene
        self._number = 0
        self._forget()

    def _forget(self) -> None:
        self.queue: list[int] = []
        self.ready: list[int] = []
        self.sent: list[int] = []
        self.want = f.Want(0, 0, 0)

    def accept(self, connection: int, hello: f.Hello) -> None:
        self.connection, self._number = connection, hello.next_frame
        self._forget()
        self.send(f.Welcome(1, self.info.worker, 64 << 20, first_frame=hello.next_frame))

    def send(self, message: f.Message) -> None:
        if self.connection is not None and not self.frozen:
            self._scene.after(TRIP, partial(self._scene.receive, self.connection, message))

    def receive(self, message: f.Message) -> None:
        if self.frozen:
            return
        assert isinstance(message, f.Want), message
        self.messages += 1
        assert message.needed >= self.want.needed
        self.want = message
        for first, count, step in message.cancelled:
            gone = set(range(first, first + count * step, step))
            self.queue = [x for x in self.queue if x not in gone]
            self.ready = [x for x in self.ready if x not in gone]
        for each in (self.queue, self.ready, self.sent):
            each[:] = [x for x in each if x >= message.needed]
        for first, count, step in message.ranges:
            asked = range(first, first + count * step, step)
            assert 0 <= first < self._scene.length
            assert asked[-1] < self._scene.length
            assert asked[-1] < message.limit
            assert not {*asked} & {*self.queue, *self.ready}, "wanted twice"
            self.queue += asked
        self._flush()
        self._go_on()

    def _go_on(self) -> None:
        if self.queue and not self.busy and not self.frozen:
            self.busy = True
            needed = self.want.needed
            index = self.queue.index(needed) if needed in self.queue else 0
            position = self.queue.pop(index)
            self._scene.after(self.seconds, lambda: self._computed(position))

    def _computed(self, position: int) -> None:
        self.busy = False
        if self.frozen:
            self.queue.insert(0, position)
            return
        self.computed.append(position)
        if position >= self.want.needed:
            self.ready.append(position)
            self.ready.sort()
        self._flush()
        self._go_on()

    def thaw(self) -> None:
        self.frozen = False
        self._flush()
        self._go_on()

    def _flush(self) -> None:
        """Send what may be sent: an error, or a frame of one element or of several ranges."""
        frame: list[int] = []
        for position in list(self.ready):
            unread = len(self.sent) * self.nbytes
            fits = unread < self.want.bytes and position < self.want.limit
            if not fits and position != self.want.needed:
                break
            self.ready.remove(position)
            self.sent.append(position)
            self.most_unread = max(self.most_unread, unread + self.nbytes)
            if position in self.fails:
                self._frame(frame)
                frame = []
                error = ErrorRecord("UserFunctionError", f"no {position}")
                self._send_frame([], [(position, 1, 1)], error)
            else:
                frame.append(position)
        self._frame(frame)

    def _frame(self, frame: list[int]) -> None:
        if frame:
            self._send_frame(frame, [(x, 1, 1) for x in frame], None)

    def _send_frame(
        self, elements: list[int], positions: list[f.Positions], error: ErrorRecord | None
    ) -> None:
        nbytes = self.nbytes * len(elements)
        message = f.Frame(self._number, list(elements), error, nbytes, positions=positions)
        self._number += 1
        self.send(message)


class Scene:
    """A client that reads `length` positions from `workers`.

    Attributes:
        yielded: the elements, and for errors their messages.
    """

    def __init__(
        self,
        length: int,
        workers: list[float],
        *,
        share: EpochShare | None = None,
        nbytes: int = 1000,
        consume: float = 0.0,
        max_outstanding_requests: int | None = None,
        buffer_bytes: int = 256 << 20,
        fails: set[int] | None = None,
        hello: m.ClientHello = HELLO,
    ) -> None:
        options = ReadOptions(
            processing_mode=ShardingPolicy.DETERMINISTIC,
            dispatcher_address="service:1",
            max_outstanding_requests=max_outstanding_requests,
            buffer_bytes=buffer_bytes,
        )
        self.now, self.length, self.consume = 0.0, length, consume
        self._nbytes, self.fails = nbytes, fails or set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.client = c.Client(hello, options, random.Random(0), 0.0, share)
        self.workers: dict[int, ModelWorker] = {}
        self.sent: list[m.Message] = []
        self.warnings: list[str] = []
        self.yielded: list[int | str] = []
        self.ended: float | None = None
        self.failed: StokerError | None = None
        self.longest_wait = 0.0
        self.most_outstanding = 0
        self._connections: dict[int, int] = {}
        self._busy = False
        self._worked = 0.0
        self._waits_since: float | None = None
        self.do(self.client.session_opened(0.0))
        self.tell(m.ClientWelcome(1, 40, 30, "journal", 500, length=length))
        for seconds in workers:
            self.add(seconds)
        self._tick()

    # ── the dispatcher ────────────────────────────────────────────────────────────────────────────
    def tell(self, message: m.FromDispatcher) -> None:
        self.do(self.client.session_message(message, self.now))

    def add(self, seconds: float, number: int | None = None) -> ModelWorker:
        number = 20 + len(self.workers) if number is None else number
        worker = ModelWorker(self, number, seconds, self._nbytes, self.fails)
        self.workers[number] = worker
        self.tell(m.Tasks(added=[worker.info]))
        return worker

    def lose(self, number: int, reason: str = "it died") -> None:
        self.workers[number].frozen = True
        self.tell(m.Tasks(lost=[m.TaskLost(number, f"host:{number}", reason, elements=0)]))

    # ── time ──────────────────────────────────────────────────────────────────────────────────────
    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def run(self, until: float = 1000.0) -> "Scene":
        """Read until the end, an error, or this time."""
        self._read()
        while self.ended is None and self.failed is None and self._events:
            if self._events[0][0] > until:
                self.now = until
                return self
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self

    def _tick(self) -> None:
        self.do(self.client.tick(self.now))
        self.after(0.25, self._tick)
        self._read()

    # ── the network ───────────────────────────────────────────────────────────────────────────────
    def receive(self, connection: int, message: f.Message) -> None:
        if connection not in self._connections:
            return
        self.do(self.client.worker_message(connection, message, self.now))
        self.most_outstanding = max(self.most_outstanding, self.client.consumption.outstanding)
        self._read()

    def break_connection(self, number: int) -> None:
        connection = self.workers[number].connection
        assert connection is not None
        del self._connections[connection]
        self.workers[number].connection = None
        self.do(self.client.connection_lost(connection, "reset", self.now))

    def do(self, actions: list[a.Action]) -> None:
        for action in actions:
            match action:
                case a.Connect(connection, task):
                    self._connections[connection] = task.task_id
                    self.after(TRIP, partial(self._connected, connection))
                case a.ToWorker(connection, f.Hello() as hello):
                    self.workers[self._connections[connection]].accept(connection, hello)
                case a.ToWorker(connection, message):
                    worker = self.workers[self._connections[connection]]
                    self.after(TRIP, partial(worker.receive, message))
                case a.Disconnect(connection):
                    self._connections.pop(connection, None)
                case a.ToDispatcher(message):
                    self.sent.append(message)
                case a.Warn(text):
                    self.warnings.append(text)

    def _connected(self, connection: int) -> None:
        if connection in self._connections:
            self.do(self.client.connected(connection))

    # ── the user ──────────────────────────────────────────────────────────────────────────────────
    def _read(self) -> None:
        if self._busy or self.ended is not None or self.failed is not None:
            return
        item, actions = self.client.take(self._worked, self.now)
        self.do(actions)
        if item is None:
            self._waits_since = self.now if self._waits_since is None else self._waits_since
        elif isinstance(item, c.EndOfIteration):
            self.ended = self.now
        elif isinstance(item, StokerError):
            self.failed = item
        else:
            self._consume(item)

    def _consume(self, chunk: ReceivedChunk) -> None:
        if self._waits_since is not None:
            self.longest_wait = max(self.longest_wait, self.now - self._waits_since)
        self._waits_since = None
        self.yielded += chunk.elements if chunk.error is None else [chunk.error.message]
        self._worked = self.consume * chunk.positions
        self._busy = True
        self.after(self._worked, self._rested)

    def _rested(self) -> None:
        self._busy = False
        self._read()
