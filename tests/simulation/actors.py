"""Simulated shells of dispatcher, workers and clients around their logic."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from stoker.errors import StokerError
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.client import logic as client_logic
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher import logic as dispatcher_logic
from stoker.service.keys import WorkerIdentity
from stoker.service.read_options import ReadOptions
from stoker.service.rpc_session import FAREWELL_SECONDS
from stoker.service.worker import logic as worker_logic
from stoker.wire import frames as f
from tests.simulation.network import Link, Side, World
from tests.simulation.pipeline import Element, Pipeline, Plan

_encode = msgspec.msgpack.Encoder().encode
_to_dispatcher = msgspec.msgpack.Decoder(m.ToDispatcher).decode
_from_dispatcher = msgspec.msgpack.Decoder(m.FromDispatcher).decode

TICK = 0.1

PAGE_ENTRIES = 3
"""File names in a page, so that most lists have several."""


@dataclass(frozen=True)
class Ear:
    """A listener of one side, made of two functions."""

    received: Callable[[Any], None]
    lost: Callable[[], None]


SUPERVISOR = -1
"""The session of the supervisor of all workers."""


class SimDispatcher:
    """The dispatcher and its open sessions."""

    def __init__(self, world: World, config: DispatcherConfig, tasks_per_client: int) -> None:
        self.world = world
        self.logic = dispatcher_logic.Dispatcher(config, world.rng, world.now, tasks_per_client)
        self._sessions: dict[int, Side] = {}
        self._last_peer = 0
        self._supervised = False
        world.every(0.25, lambda: self._do(self.logic.tick(world.now)), lambda: True)

    def accept(self, side: Side) -> None:
        """Accept a session."""
        self._last_peer += 1
        peer = self._last_peer
        self._sessions[peer] = side

        def received(data: bytes) -> None:
            self._do(self.logic.received(peer, _to_dispatcher(data), self.world.now))

        def lost() -> None:
            if self._sessions.pop(peer, None) is not None:
                self._do(self.logic.disconnected(peer, self.world.now))

        side.listener = Ear(received, lost)

    def call(self, request: m.Request) -> m.Reply:
        """Answer a call immediately."""
        reply, actions = self.logic.call(request, self.world.now)
        self._do(actions)
        return reply

    def report_death(self, identity: WorkerIdentity) -> None:
        """Deliver the report of a supervisor whose session never breaks."""
        if not self._supervised:
            self._supervised = True
            self._do(self.logic.received(SUPERVISOR, m.SupervisorHello(1, 1), self.world.now))
        died = m.WorkerDied(identity.worker_id, "it was killed", identity.key)
        self._do(self.logic.received(SUPERVISOR, died, self.world.now))

    def _do(self, actions: Sequence[dispatcher_logic.Action]) -> None:
        if self.logic.has_work:
            self.world.after(0, lambda: self._do(self.logic.work(self.world.now)))
        for action in actions:
            side = self._sessions.get(action.peer)
            if side is None:
                continue
            if isinstance(action, dispatcher_logic.Send):
                side.send(Encoded(action.message))
            else:
                side.close()
                assert side.listener is not None
                self.world.after(0, side.listener.lost)


class Encoded(bytes):
    """An encoded control message that the trace shows decoded."""

    message: Any

    def __new__(cls, message: Any) -> "Encoded":
        self = super().__new__(cls, _encode(message))
        self.message = message
        return self

    def __repr__(self) -> str:
        return repr(self.message)

    __str__ = __repr__


class Session:
    """A session that reconnects whenever it breaks, as `rpc_session.Session` does."""

    def __init__(
        self,
        world: World,
        name: str,
        dispatcher: SimDispatcher,
        opened: Callable[[], None],
        received: Callable[[Any], None],
        lost: Callable[[], None],
    ) -> None:
        self._world, self._name, self._dispatcher = world, name, dispatcher
        self._opened, self._received, self._lost = opened, received, lost
        self._side: Side | None = None
        self._closed = False
        world.after(world.rng.uniform(0, 0.05), self._open)

    def send(self, message: m.ToDispatcher) -> None:
        """Send `message` if the session is open."""
        if self._side is not None:
            self._side.send(Encoded(message))

    def kill(self) -> None:
        """End the session for good, as the death of its process does."""
        self._closed = True
        if self._side is not None:
            self._side.close()
            self._side = None

    def close(self, farewell: m.Request | None) -> None:
        """End the session for good; make the call unless all messages sent have arrived."""
        if farewell is None:
            self.kill()
            return
        self._closed = True
        side, self._side = self._side, None

        def call() -> None:
            self._dispatcher.call(farewell)

        answered = False

        def received(data: bytes) -> None:
            nonlocal answered
            answered = isinstance(_from_dispatcher(data), m.ClientClosed)

        def ended() -> None:
            if not answered:
                self._world.after(self._world.rng.uniform(0.01, FAREWELL_SECONDS / 2), call)

        if side is None:
            ended()
        else:  # the dispatcher ends it after `ClientClose`
            side.listener = Ear(received, ended)

    def _open(self) -> None:
        if self._closed:
            return
        link = Link(self._world, (self._name, "D"), slowest=0.2)
        self._side, far = link.sides
        self._dispatcher.accept(far)
        self._side.listener = Ear(lambda data: self._received(_from_dispatcher(data)), self._broken)
        self._opened()

    def _broken(self) -> None:
        self._side = None
        if not self._closed:
            self._lost()
            self._world.after(self._world.rng.uniform(0.02, 0.2), self._open)


class SimWorker:
    """A worker process: its logic, its pipelines and its data connections."""

    def __init__(
        self,
        world: World,
        name: str,
        address: str,
        dispatcher: SimDispatcher,
        plan: Plan,
        seconds: float,
        buffer_bytes: int,
    ) -> None:
        self.world, self.name, self.address, self.alive = world, name, address, True
        self.identity: WorkerIdentity | None = None
        self.pipelines: dict[int, Pipeline] = {}
        self._plan, self._seconds = plan, seconds
        self._sides: dict[int, Side] = {}
        self._last_connection = 0
        self._heartbeat = 0.1
        self._next_heartbeat = 0.0
        self._leaves_at: float | None = None
        versions = m.Versions("3.11", "2")
        instance = f"{name} {world.rng.getrandbits(32)}"
        hello = m.WorkerHello(1, 1, address, {"sim": address}, versions, instance=instance)
        self.logic = worker_logic.Worker(hello, buffer_bytes)
        self.session = Session(
            world,
            name,
            dispatcher,
            lambda: self.do(self.logic.session_opened()),
            self._session_message,
            lambda: self.do(self.logic.session_lost()),
        )
        world.every(TICK, self._tick, lambda: self.alive)

    def _session_message(self, message: Any) -> None:
        if isinstance(message, m.WorkerWelcome):
            self.identity = WorkerIdentity(message.worker_id, message.key)
        self.do(self.logic.session_message(message, self.world.now))

    def accept(self, side: Side) -> None:
        """Accept a data connection of a client."""
        self._last_connection += 1
        number = self._last_connection
        self._sides[number] = side

        def received(message: f.Message) -> None:
            self.do(self.logic.client_message(number, message, self.world.now))

        def lost() -> None:
            if self._sides.pop(number, None) is not None:
                self.do(self.logic.client_lost(number))

        side.listener = Ear(received, lost)

    def drain(self, grace: float) -> None:
        """Stop the process as SIGTERM does."""
        self.world.note(f"       {self.name} drains")
        self.do(self.logic.drain(self.world.now))
        self._leaves_at = self.world.now + grace

    def crash(self) -> None:
        """Kill the process with all its state."""
        self.world.note(f"       {self.name} crashes")
        self.alive = False
        self.session.kill()
        for pipeline in self.pipelines.values():
            pipeline.close()
        for side in self._sides.values():
            side.close()
        self._sides.clear()
        self.pipelines.clear()

    def _tick(self) -> None:
        now = self.world.now
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._heartbeat
            self.session.send(m.Heartbeat())
        self.do(self.logic.tick(now))
        if self._leaves_at is not None and (self.logic.drained or now >= self._leaves_at):
            self.do(self.logic.leave())
            self.crash()

    def do(self, actions: Sequence[worker_logic.Action]) -> None:
        """Execute the logic's actions."""
        for action in actions if self.alive else ():
            match action:
                case worker_logic.ToClient(connection, message) if connection in self._sides:
                    self._sides[connection].send(message)
                case worker_logic.ToDispatcher(message):
                    self.session.send(message)
                case worker_logic.CloseConnection(connection) if connection in self._sides:
                    side = self._sides[connection]
                    side.close()
                    assert side.listener is not None
                    self.world.after(0, side.listener.lost)
                case worker_logic.OpenTask(start):
                    self._open(start)
                case worker_logic.CloseTask(task_id) | worker_logic.StopPipeline(task_id):
                    if task_id in self.pipelines:
                        self.pipelines.pop(task_id).close()
                case worker_logic.Produce(task_id) if task_id in self.pipelines:
                    self.pipelines[task_id].resume()
                case worker_logic.GiveSplit(task_id, _, _, split) if task_id in self.pipelines:
                    self.pipelines[task_id].give_split(split)
                case worker_logic.ListSplits(request):
                    self.world.after(0.01, partial(self._listed, self._page(request)))
                case worker_logic.SetHeartbeat(milliseconds):
                    self._heartbeat = milliseconds / 1000

    def _page(self, request: m.ListSplits) -> m.SplitsPage:
        [files] = [x.files for x in self._plan.sources if x.number == request.source]
        values = files[request.start : request.start + PAGE_ENTRIES]
        return m.SplitsPage(
            request.listing_id,
            request.source,
            request.start,
            len(files),
            msgspec.Raw(_encode(values)),
        )

    def _listed(self, answer: m.SplitsPage) -> None:
        self.do(self.logic.splits_listed(answer))

    def _open(self, start: m.TaskStart) -> None:
        def need_split(task_id: int, source: int, source_epoch: int) -> None:
            self.do(self.logic.need_split(task_id, source, source_epoch, self.world.now))

        def produced(task_id: int, chunk: Chunk) -> bool:
            self.do(self.logic.produced(task_id, chunk))
            return self.logic.may_produce(task_id)

        def exhausted(task_id: int) -> None:
            self.do(self.logic.exhausted(task_id))

        self.pipelines[start.task_id] = Pipeline(
            start,
            self._plan,
            random.Random(start.seed),
            self._seconds,
            self.world.after,
            need_split,
            produced,
            exhausted,
        )


@dataclass
class Delivery:
    """The elements that one client yielded."""

    elements: list[Element] = field(default_factory=list)
    by_task: dict[int, list[Element]] = field(default_factory=dict)
    last_frame: dict[int, int] = field(default_factory=dict)

    reader_ids: dict[int, int] = field(default_factory=dict)

    def connect(self, task: m.TaskInfo) -> None:
        """Expect frames from the first on if the client reads a task that it had left."""
        if self.reader_ids.get(task.task_id) != task.reader_id:
            self.reader_ids[task.task_id] = task.reader_id
            self.last_frame.pop(task.task_id, None)

    def add(self, chunk: client_logic.ReceivedChunk, element: Element) -> None:
        """Record a yielded element, or the error in its position."""
        assert chunk.number >= self.last_frame.get(chunk.task_id, 0), "frames out of order"
        self.last_frame[chunk.task_id] = chunk.number
        self.elements.append(element)
        self.by_task.setdefault(chunk.task_id, []).append(element)


class SimClient:
    """An iterator and its user, which consumes elements one by one and may stop early.

    Attributes:
        state: "reading", "ended", "closed" (early), "failed" or "crashed".
    """

    def __init__(
        self,
        world: World,
        name: str,
        dispatcher: SimDispatcher,
        workers: dict[str, SimWorker],
        hello: m.ClientHello,
        options: ReadOptions,
        seconds: float,
        stop_after: int | None,
    ) -> None:
        self.world, self.name, self.state = world, name, "reading"
        self.error: StokerError | None = None
        self.delivery = Delivery()
        self.warnings: list[str] = []
        self.most_outstanding = 0
        self.left_at = 0.0
        self._workers, self._seconds, self._stop_after = workers, seconds, stop_after
        self._connecting: set[int] = set()
        self._sides: dict[int, Side] = {}
        self._chunk: client_logic.ReceivedChunk | None = None
        self._taken = 0
        self._busy = False
        self._worked = 0.0
        self._heartbeat, self._next_heartbeat = 0.1, math.inf
        self.logic = client_logic.Client(hello, options, world.rng, world.now)
        self.session = Session(
            world,
            name,
            dispatcher,
            lambda: self._do(self.logic.session_opened()),
            lambda message: self._do(self.logic.session_message(message, world.now)),
            lambda: self._do(self.logic.session_lost(world.now)),
        )
        world.every(TICK, self._tick, lambda: self.state == "reading")

    @property
    def open_connections(self) -> int:
        """The number of data connections that are open."""
        return sum(side.open for side in self._sides.values())

    def crash(self) -> None:
        """Kill the process."""
        if self.state == "reading":
            self.world.note(f"       {self.name} crashes")
            self._leave("crashed")

    def _leave(self, state: str) -> None:
        self.state, self.left_at = state, self.world.now
        if state == "crashed":
            self.session.kill()
            for side in self._sides.values():
                side.close()
        else:
            taken = self._taken
            self._do(self.logic.close(taken))
            self.world.after(5.0, self._hang_up)
            self.session.close(self.logic.farewell(self.world.now))

    def _hang_up(self) -> None:
        """Close the connections whose farewell took too long."""
        for side in self._sides.values():
            side.close()

    def _tick(self) -> None:
        now = self.world.now
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._heartbeat
            self.session.send(m.Heartbeat())
        self._do(self.logic.tick(now))

    # ── the user ──────────────────────────────────────────────────────────────────────────────────
    def _read_on(self) -> None:
        """Run the user's thread: consume the next element if it has arrived."""
        if self.state != "reading" or self._busy:
            return
        if self._chunk is None or self._taken >= len(self._chunk.elements):
            chunk, actions = self.logic.take(self._worked, self.world.now)
            self._chunk, self._taken, self._worked = None, 0, 0.0
            self._carry_out(actions)
            if chunk is None:
                return
            if isinstance(chunk, client_logic.End):
                self.world.note(f"       {self.name} is at the end")
                self._leave("ended")
                return
            if isinstance(chunk, StokerError):
                self.error = chunk
                self.world.note(f"       {self.name} fails: {chunk}")
                self._leave("failed")
                return
            self._chunk = chunk
            if chunk.error is not None:
                self._got(tuple(int(x) for x in chunk.error.message.strip("()").split(",")))
                return
        element = self._chunk.elements[self._taken]
        self._taken += 1
        self._got(element)

    def _got(self, element: Any) -> None:
        assert self._chunk is not None
        self.delivery.add(self._chunk, element)
        if self._stop_after == len(self.delivery.elements):
            self.world.note(f"       {self.name} stops early")
            self._leave("closed")
            return
        self._busy = True
        seconds = self._seconds * self.world.rng.uniform(0.5, 1.5)
        self._worked += seconds
        self.world.after(seconds, self._rested)

    def _rested(self) -> None:
        self._busy = False
        self._read_on()

    # ── actions ───────────────────────────────────────────────────────────────────────────────────
    def _do(self, actions: Sequence[client_logic.Action]) -> None:
        self._carry_out(actions)
        self._read_on()

    def _carry_out(self, actions: Sequence[client_logic.Action]) -> None:
        for action in actions:
            match action:
                case client_logic.ToDispatcher(message):
                    self.session.send(message)
                case client_logic.Connect(connection, task):
                    self.delivery.connect(task)
                    self._connecting.add(connection)
                    delay = self.world.rng.uniform(0.001, 0.03)
                    self.world.after(delay, partial(self._connect, connection, task))
                case client_logic.ToWorker(connection, message) if connection in self._sides:
                    self._sides[connection].send(message)
                case client_logic.Disconnect(connection, farewell):
                    self._connecting.discard(connection)
                    if not farewell and connection in self._sides:
                        self._sides.pop(connection).close()
                case client_logic.SetHeartbeat(milliseconds):
                    self._heartbeat = milliseconds / 1000
                    self._next_heartbeat = min(self._next_heartbeat, self.world.now)
                case client_logic.Warn(text):
                    self.warnings.append(text)

    def _connect(self, connection: int, task: m.TaskInfo) -> None:
        if self.state != "reading" or connection not in self._connecting:
            return
        self._connecting.discard(connection)
        worker = self._workers.get(task.data_transfer_addresses["sim"])
        if worker is None or not worker.alive:
            self._do(self.logic.connection_lost(connection, "nobody listens", self.world.now))
            return
        link = Link(self.world, (self.name, worker.name), slowest=0.2)
        side, far = link.sides
        self._sides[connection] = side
        worker.accept(far)

        def received(message: f.Message) -> None:
            actions = self.logic.worker_message(connection, message, self.world.now)
            self.most_outstanding = max(self.most_outstanding, self.logic.outstanding)
            self._do(actions)
            if isinstance(message, f.Bye):
                side.close()
                lost()

        def lost() -> None:
            self._sides.pop(connection, None)
            self._do(self.logic.connection_lost(connection, "it broke", self.world.now))

        side.listener = Ear(received, lost)
        self._do(self.logic.connected(connection))
