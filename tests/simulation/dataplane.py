"""Simulated workers, links with delay and bandwidth, and users; no dispatcher, no faults.

It measures properties that depend on time and sizes: how clients share the elements of a job, how
much is buffered where, how well a link is used. Elements are their numbers; their size is a
function of the number.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stoker.service import messages as m
from stoker.service.api.read_options import ReadOptions
from stoker.service.chunk import Chunk
from stoker.service.client import actions as client_actions
from stoker.service.client import logic as client_logic
from stoker.service.client.flow.credit import BUFFER_BYTES
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.keys import reader_key
from stoker.service.rules.processing_modes import ShardingPolicy
from stoker.service.worker import actions as a
from stoker.service.worker import logic as worker_logic
from stoker.service.worker.buffers.chunk_queue import FRAME_BYTES, FRAME_ELEMENTS
from stoker.wire import frames as f
from tests.simulation.network import World

CHUNK = FRAME_ELEMENTS
CHUNK_BYTES = FRAME_BYTES

Sizes = Callable[[int], int]


@dataclass(frozen=True)
class Wire:
    """Properties of a data connection: one-way delay in seconds, bytes per second to the client."""

    delay: float = 0.0001
    width: float = 10e9


class Worker:
    """A worker with one task whose elements it computes as fast as it can.

    Attributes:
        exhausted_at: the time at which all elements were computed.
        most_bytes: the most bytes it ever buffered: computed, or sent and not known to be consumed.
    """

    def __init__(
        self,
        world: World,
        number: int,
        elements: Sequence[int],
        seconds: float,
        nbytes: Sizes,
        buffer_bytes: int,
    ) -> None:
        self.world, self.number = world, number
        self.exhausted_at: float | None = None
        self.most_bytes = 0
        self._elements, self._seconds, self._nbytes = elements, seconds, nbytes
        self._next = 0
        self._clients: dict[int, Callable[[f.Message], None]] = {}
        hello = m.WorkerHello(1, 1, f"host:{number}", {}, m.Versions("3.11", "2"))
        self.logic = worker_logic.Worker(hello, buffer_bytes)
        start = m.TaskStart(number, 1, "dataset", number, (0,))
        self.logic.session_message(start, 0.0)
        self.task = self.logic.tasks[number]
        world.after(0, self._produce)

    def accept(self, connection: int, say: Callable[[f.Message], None]) -> None:
        """Accept a connection of a client."""
        self._clients[connection] = say

    def hear(self, connection: int, message: f.Message) -> None:
        """Handle a message of a client."""
        self._do(self.logic.client_message(connection, message, self.world.now))

    @property
    def held_bytes(self) -> int:
        """Bytes that are computed, or sent and not known to be consumed."""
        kept = sum(x.kept_bytes + x.backlog.nbytes for x in self.task.readers.values())
        return self.task.buffer.nbytes + kept

    def _produce(self) -> None:
        if self._next == len(self._elements):
            self.exhausted_at = self.world.now
            self._do(self.logic.exhausted(self.number))
            return
        chunk: list[int] = []
        nbytes = 0
        while self._next < len(self._elements) and len(chunk) < CHUNK and nbytes < CHUNK_BYTES:
            chunk.append(self._elements[self._next])
            nbytes += self._nbytes(chunk[-1])
            self._next += 1
        self.world.after(self._seconds * len(chunk), partial(self._produced, Chunk(chunk, nbytes)))

    def _produced(self, chunk: Chunk) -> None:
        self._do(self.logic.produced(self.number, chunk))
        if self.logic.may_produce(self.number):
            self._produce()

    def _do(self, actions: Sequence[a.Action]) -> None:
        self.most_bytes = max(self.most_bytes, self.held_bytes)
        for action in actions:
            match action:
                case a.SendToClient(connection, message):
                    self._clients[connection](message)
                case a.Produce():
                    self.world.after(0, self._produce)


class Client:
    """An iterator and its user, which works `seconds(k)` on the k-th element.

    Attributes:
        taken: the yielded elements, in order.
        began, ended: times of the first element and of the end.
        waited: seconds that the user waited in between.
        held: bytes that were received and not consumed; most_bytes: their maximum.
        frames: the number of elements of each frame.
    """

    def __init__(
        self,
        world: World,
        number: int,
        workers: Sequence[Worker],
        seconds: Callable[[int], float],
        nbytes: Sizes,
        wire: Wire | Sequence[Wire],
        buffer_bytes: int = BUFFER_BYTES,
        max_outstanding_requests: int | None = None,
    ) -> None:
        self.world, self.number = world, number
        self.taken: list[int] = []
        self.began: float | None = None
        self.ended: float | None = None
        self.waited = 0.0
        self.held = self.most_bytes = 0
        self.frames: list[int] = []
        self._workers = {worker.number: worker for worker in workers}
        self._seconds, self._nbytes = seconds, nbytes
        wires = [wire] * len(workers) if isinstance(wire, Wire) else wire
        self._wires = dict(zip(self._workers, wires, strict=True))
        self._free_at = dict.fromkeys(self._workers, 0.0)
        self._by_connection: dict[int, int] = {}
        self._busy = False
        self._worked = 0.0
        self._waits_since: float | None = 0.0
        self._chunk_bytes = 0
        options = ReadOptions(
            processing_mode=ShardingPolicy.OFF,
            dispatcher_address="sim",
            max_outstanding_requests=max_outstanding_requests,
            buffer_bytes=buffer_bytes,
        )
        hello = m.ClientHello(1, 1, "dataset", "job", options.job_parameters, (0,))
        self.logic = client_logic.Client(hello, options, random.Random(number), 0.0)
        self.logic.session_opened(0.0)
        self.logic.session_message(m.ClientWelcome(1, number, 1, "journal", 500), 0.0)
        tasks = [
            m.TaskInfo(x.number, f"host:{x.number}", {}, [], number, reader_key(b"", number))
            for x in workers
        ]
        self._carry_out(self.logic.session_message(m.Tasks(added=tasks, computed=True), 0.0))

    # ── the wire ──────────────────────────────────────────────────────────────────────────────────
    def _connect(self, connection: int, task_id: int) -> None:
        self._by_connection[connection] = task_id
        key = 1000 * self.number + connection
        self._workers[task_id].accept(key, partial(self._travel, connection))
        self._carry_out(self.logic.connected(connection))

    def _travel(self, connection: int, message: f.Message) -> None:
        """Transmit a message of a worker: frames take their time, one after another."""
        task_id = self._by_connection[connection]
        wire = self._wires[task_id]
        size = sum(map(self._nbytes, message.elements)) if isinstance(message, f.Frame) else 0
        start = max(self.world.now, self._free_at[task_id])
        self._free_at[task_id] = start + size / wire.width
        self.world.at(self._free_at[task_id] + wire.delay, partial(self._hear, connection, message))

    def _hear(self, connection: int, message: f.Message) -> None:
        if isinstance(message, f.Frame):
            self.frames.append(len(message.elements))
            self.held += sum(map(self._nbytes, message.elements))
            self.most_bytes = max(self.most_bytes, self.held)
        self._carry_out(self.logic.worker_message(connection, message, self.world.now))
        self._read_on()

    def _say(self, connection: int, message: f.Message) -> None:
        task_id = self._by_connection[connection]
        hear = partial(self._workers[task_id].hear, 1000 * self.number + connection, message)
        self.world.after(self._wires[task_id].delay, hear)

    # ── the user ──────────────────────────────────────────────────────────────────────────────────
    def _read_on(self) -> None:
        if self._busy or self.ended is not None:
            return
        chunk, actions = self.logic.take(self._worked, self.world.now)
        self._worked = 0.0
        self.held -= self._chunk_bytes
        self._chunk_bytes = 0
        self._carry_out(actions)
        now = self.world.now
        if chunk is None:
            if self._waits_since is None:
                self._waits_since = now
            return
        if isinstance(chunk, client_logic.EndOfIteration):
            self.ended = now
            return
        assert isinstance(chunk, ReceivedChunk)
        if self.began is None:
            self.began = now
        elif self._waits_since is not None:
            self.waited += now - self._waits_since
        self._waits_since = None
        first = len(self.taken)
        self.taken += chunk.elements
        self._worked = sum(map(self._seconds, range(first, len(self.taken))))
        self._chunk_bytes = sum(map(self._nbytes, chunk.elements))
        self._busy = True
        self.world.after(self._worked, self._rested)

    def _rested(self) -> None:
        self._busy = False
        self._read_on()

    @property
    def outstanding(self) -> int:
        """Elements that workers have sent and do not know to be consumed."""
        return sum(
            worker.task.readers[self.number].kept_positions
            for worker in self._workers.values()
            if self.number in worker.task.readers
        )

    def _carry_out(self, actions: Sequence[Any]) -> None:
        for action in actions:
            match action:
                case client_actions.Connect(connection, task):
                    delay = self._wires[task.task_id].delay
                    self.world.after(2 * delay, partial(self._connect, connection, task.task_id))
                case client_actions.ToWorker(connection, message):
                    self._say(connection, message)


def world() -> World:
    """Return a world whose clock is at 0."""
    return World(random.Random(0))
