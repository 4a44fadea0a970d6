"""The simulated shell of a client, and its user."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stoker.errors import StokerError
from stoker.service import messages as m
from stoker.service.api.read_options import ReadOptions
from stoker.service.client import actions as client_actions
from stoker.service.client import logic
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.wire import frames as f
from tests.simulation.network import Link, Side, World, can_connect
from tests.simulation.pipeline import Element, elements_of
from tests.simulation.process import Process
from tests.simulation.session import Ear, Session, SessionServer
from tests.simulation.worker import SimWorker

TICK_SECONDS = 0.1


@dataclass
class Delivery:
    """The elements that one client yielded; `by_reading` by task and reader id."""

    elements: list[Any] = field(default_factory=list)
    by_task: dict[int, list[Element]] = field(default_factory=dict)
    by_reading: dict[tuple[int, int], list[Element]] = field(default_factory=dict)
    last_frame: dict[int, int] = field(default_factory=dict)

    reader_ids: dict[int, int] = field(default_factory=dict)
    steps: list[tuple[int, int, Element, bool]] = field(default_factory=list)

    def connect(self, task: m.TaskInfo) -> None:
        """Expect frames from the first on if the client reads a task that it had left."""
        if self.reader_ids.get(task.task_id) != task.reader_id:
            self.reader_ids[task.task_id] = task.reader_id
            self.last_frame.pop(task.task_id, None)

    def receive(self, message: f.Message) -> None:
        """Record what a worker sends."""

    def add(self, chunk: ReceivedChunk, element: Any) -> None:
        """Record a yielded element, or the error in its position."""
        self.steps.append((chunk.task_id, chunk.number, element, chunk.repeated))
        if chunk.repeated:
            return
        assert chunk.number >= self.last_frame.get(chunk.task_id, 0), "frames out of order"
        self.last_frame[chunk.task_id] = chunk.number
        self.elements.append(element)
        self.by_task.setdefault(chunk.task_id, []).append(element)
        reading = chunk.task_id, self.reader_ids[chunk.task_id]
        self.by_reading.setdefault(reading, []).append(element)


class SimClient:
    """An iterator and its user, which consumes elements one by one and may stop early.

    Attributes:
        state: "reading", "ended", "closed" (early), "failed" or "crashed".
        key: identifies it to the dispatcher.
        most_outstanding: the most elements it ever held or had in flight to it.
        may_step: returns whether the user reads on now.
        stepped: called after each element.
        left: called when the user reads no more; `left_at` is the time.
    """

    def __init__(
        self,
        world: World,
        name: str,
        dispatcher: SessionServer,
        workers: dict[str, SimWorker],
        hello: m.ClientHello,
        options: ReadOptions,
        seconds: float,
        stop_after: int | None = None,
        host: str = "",
        delivery: Delivery | None = None,
        share: EpochShare | None = None,
        start: int = 0,
    ) -> None:
        self.world, self.name, self.state = world, name, "reading"
        self.process = Process(world, name, host)
        self.key = hello.key
        self.error: StokerError | None = None
        self.delivery = delivery or Delivery()
        self.warnings: list[str] = []
        self.most_outstanding = 0
        self.may_step: Callable[[], bool] = lambda: True
        self.stepped: Callable[[], None] = lambda: None
        self.left: Callable[[], None] = lambda: None
        self.left_at = math.inf
        self._workers, self._seconds, self._stop_after = workers, seconds, stop_after
        self._connecting: set[int] = set()
        self._sides: dict[int, Side] = {}
        self._chunk: ReceivedChunk | None = None
        self._taken = 0
        self._busy = False
        self._worked = 0.0
        self._heartbeat, self._next_heartbeat = 0.1, math.inf
        self.logic = logic.Client(hello, options, world.rng, world.now, share)
        if start:
            self.logic.advance(start)
        self.session = Session(
            self.process,
            dispatcher,
            lambda: self._do(self.logic.session_opened(world.now)),
            lambda message: self._do(self.logic.session_message(message, world.now)),
            lambda: self._do(self.logic.session_lost(world.now)),
        )
        self.process.every(TICK_SECONDS, self._tick, lambda: self.state == "reading")

    @property
    def journal_id(self) -> str:
        """The journal of the dispatcher whose client it is, or ""."""
        return self.logic.registration.hello.journal_id

    @property
    def open_connections(self) -> int:
        """The number of data connections that are open."""
        return sum(side.open for side in self._sides.values())

    def crash(self, *, silently: bool = False) -> None:
        """Kill the process; `silently`, with its host."""
        if self.state == "reading":
            self.world.note(f"       {self.name} crashes{' with its host' if silently else ''}")
            self._end("crashed")
            self.process.kill(silently=silently)
            self._sides.clear()

    def stop(self) -> None:
        """Close the iterator, unless the user reads no more."""
        if self.state == "reading":
            self.world.note(f"       {self.name} is closed")
            self._leave("closed")

    def _end(self, state: str) -> None:
        self.state, self.left_at = state, self.world.now
        self.left()

    def _leave(self, state: str) -> None:
        self._end(state)
        taken = self._taken
        self._do(self.logic.close(taken))
        self.process.after(5.0, self._hang_up)
        self.session.close(self.logic.farewell(self.world.now))

    def _hang_up(self) -> None:
        """Close the connections whose farewell took too long."""
        for side in self._sides.values():
            side.close()

    def _tick(self) -> None:
        now = self.world.now
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._heartbeat
            read = self.logic.consumption
            totals = read.elements, read.bytes
            self.session.send(m.Heartbeat(reading=m.ReadReport(*totals, 0.0, now)))
        self._do(self.logic.tick(now))

    # ── the user ──────────────────────────────────────────────────────────────────────────────────
    def _read_on(self) -> None:
        """Run the user's thread: consume the next element if it has arrived."""
        if self.state != "reading" or self._busy or not self.may_step():
            return
        if self._chunk is None or self._taken >= len(self._chunk.elements):
            chunk, actions = self.logic.take(self._worked, self.world.now)
            self._chunk, self._taken, self._worked = None, 0, 0.0
            self._carry_out(actions)
            if chunk is None:
                return
            if isinstance(chunk, logic.EndOfIteration):
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
                self._got(*elements_of(chunk))
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
        self.stepped()
        self.process.after(seconds, self._rested)

    def _rested(self) -> None:
        self._busy = False
        self.read_on()

    def read_on(self) -> None:
        """Let the user read on, if nothing else makes it."""
        self._read_on()

    # ── actions ───────────────────────────────────────────────────────────────────────────────────
    def _do(self, actions: Sequence[client_actions.Action]) -> None:
        self._carry_out(actions)
        self._read_on()

    def _carry_out(self, actions: Sequence[client_actions.Action]) -> None:
        for action in actions:
            match action:
                case client_actions.ToDispatcher(message):
                    self.session.send(message)
                case client_actions.Connect(connection, task):
                    self.delivery.connect(task)
                    self._connecting.add(connection)
                    delay = self.world.rng.uniform(0.001, 0.03)
                    self.process.after(delay, partial(self._connect, connection, task))
                case client_actions.ToWorker(connection, message) if connection in self._sides:
                    self._sides[connection].send(message)
                case client_actions.Disconnect(connection, farewell):
                    self._connecting.discard(connection)
                    if not farewell and connection in self._sides:
                        self._sides.pop(connection).close()
                case client_actions.SetHeartbeat(milliseconds):
                    self._heartbeat = milliseconds / 1000
                    self._next_heartbeat = min(self._next_heartbeat, self.world.now)
                case client_actions.Warn(text):
                    self.warnings.append(text)

    def _connect(self, connection: int, task: m.TaskInfo) -> None:
        if self.state != "reading" or connection not in self._connecting:
            return
        self._connecting.discard(connection)
        worker = self._workers.get(task.data_transfer_addresses["sim"])
        if worker is None or not can_connect(self.process, worker.process, self.world):
            self._do(self.logic.connection_lost(connection, "nobody listens", self.world.now))
            return
        link = Link(self.world, (self.process, worker.process))
        side, far = link.sides
        self._sides[connection] = side
        worker.process.run(partial(worker.accept, far), link)

        def received(message: f.Message) -> None:
            self.delivery.receive(message)
            actions = self.logic.worker_message(connection, message, self.world.now)
            self.most_outstanding = max(self.most_outstanding, self.logic.consumption.outstanding)
            self._do(actions)
            if isinstance(message, f.Bye):
                side.close()
                lost()

        def lost() -> None:
            self._sides.pop(connection, None)
            self._do(self.logic.connection_lost(connection, "it broke", self.world.now))

        side.listener = Ear(received, lost)
        self._do(self.logic.connected(connection))
