"""The simulated shell of a worker."""

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.keys import WorkerIdentity
from stoker.service.worker import actions as a
from stoker.service.worker import logic
from stoker.service.worker.buffers.sliding_window import SlidingWindow
from stoker.service.worker.shell import HURRY_SECONDS
from stoker.wire import frames as f
from tests.simulation.network import Side, World
from tests.simulation.pipeline import Element, Pipeline, Plan, elements_of
from tests.simulation.positions.epoch import EpochPlan
from tests.simulation.positions.position_pipeline import PositionPipeline
from tests.simulation.positions.wire_monitor import WireMonitor
from tests.simulation.process import Process
from tests.simulation.session import Ear, Session, SessionServer
from tests.simulation.shard_plan import ShardPipeline

TICK_SECONDS = 0.1

PAGE_ENTRIES = 3
"""File names in a page, so that most lists have several."""


class SimWorker:
    """A worker process: its logic, its pipelines and its data connections.

    Args:
        world: the clock and the network.
        name: names it in the trace.
        host: its host; a successor has that of the first worker.
        address: the address at which clients find it.
        dispatcher: the dispatcher.
        plan: the dataset.
        seconds: time to compute a typical element.
        buffer_bytes: as of `logic.Worker`.
        cache_bytes: as of `logic.Worker`, if there is a cross-trainer cache.

    Attributes:
        refused: another worker has its place; a real one stops after a while.
        ids: the ids that dispatchers have assigned to it.
        most_buffered: the most bytes that a task had computed and not sent.
        most_cached: the most bytes that a cross-trainer cache kept.
        computed: the elements of each of its tasks, if there is a cross-trainer cache.
        most_sent: the most bytes sent to a reader and not known to be consumed.
    """

    def __init__(
        self,
        world: World,
        name: str,
        host: str,
        address: str,
        dispatcher: SessionServer,
        plan: Plan | EpochPlan,
        seconds: float,
        buffer_bytes: int,
        cache_bytes: int | None = None,
    ) -> None:
        self.world, self.name, self.address = world, name, address
        self.process = Process(world, name, host)
        self.identity: WorkerIdentity | None = None
        self.ids: set[int] = set()
        self.most_buffered = self.most_sent = self.most_cached = 0
        self.computed: dict[int, list[Element]] | None = None if cache_bytes is None else {}
        self.pipelines: dict[int, Pipeline | PositionPipeline] = {}
        self.refused = False
        self.seconds = seconds
        self.died: Callable[[dict[int, list[CallRange]], int], None]
        self._plan = plan
        self.monitor = WireMonitor(name, plan) if isinstance(plan, EpochPlan) else None
        self._sides: dict[int, Side] = {}
        self._last_connection = 0
        self._heartbeat = 0.1
        self._next_heartbeat = 0.0
        self._leaves_at: float | None = None
        versions = m.Versions("3.11", "2")
        instance = f"{name} {world.rng.getrandbits(32)}"
        hello = m.WorkerHello(
            1, 1, address, {"sim": address}, versions, instance=instance, version="sim"
        )
        self.logic = logic.Worker(hello, buffer_bytes, cache_bytes=cache_bytes or 1)
        self.session = Session(
            self.process,
            dispatcher,
            lambda: self.do(self.logic.session_opened()),
            self._session_message,
            lambda: self.do(self.logic.session_lost()),
        )
        self.process.every(TICK_SECONDS, self._tick, lambda: True)

    @property
    def alive(self) -> bool:
        """True until the process ends."""
        return self.process.alive

    @property
    def is_draining(self) -> bool:
        """True if the process was asked to drain."""
        return self._leaves_at is not None

    def accept(self, side: Side) -> None:
        """Accept a data connection of a client."""
        self._last_connection += 1
        number = self._last_connection
        self._sides[number] = side

        def received(message: f.Message) -> None:
            if self.monitor is not None:
                self.monitor.received(number, message)
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

    def crash(self, *, silently: bool = False) -> None:
        """Kill the process with all its state; `silently`, with its host."""
        self.world.note(f"       {self.name} crashes{' with its host' if silently else ''}")
        self.process.kill(silently=silently)
        for pipeline in self.pipelines.values():
            pipeline.close()
        self._sides.clear()
        self.pipelines.clear()

    def do(self, actions: Sequence[a.Action]) -> None:
        """Execute the logic's actions."""
        self._measure()
        for action in actions if self.alive else ():
            match action:
                case a.SendToClient(connection, message) if connection in self._sides:
                    if self.monitor is not None:
                        self.monitor.sent(connection, message)
                    self._sides[connection].send(message)
                case a.SendToDispatcher(message):
                    self.session.send(message)
                case a.CloseConnection(connection) if connection in self._sides:
                    side = self._sides[connection]
                    side.close()
                    assert side.listener is not None
                    self.process.after(0, side.listener.lost)
                case a.StartListing(request):
                    self.process.after(0.01, partial(self._listed, self._page(request)))
                case a.SetHeartbeatInterval(milliseconds):
                    self._heartbeat = milliseconds / 1000
                case a.StopDrained() if self._leaves_at is None:
                    self.world.note(f"       {self.name} is asked to drain")
                    self._leaves_at = math.inf
                case _:
                    self._run_on_pipeline(action)

    def _run_on_pipeline(self, action: a.Action) -> None:
        match action:
            case a.OpenTask(start):
                self._open(start)
            case a.ClosePipeline(task_id):
                if task_id in self.pipelines:
                    self.pipelines.pop(task_id).close()
            case a.Produce(task_id) if task_id in self.pipelines:
                self.pipelines[task_id].resume()
            case a.GiveFiles(page):
                if isinstance(pipeline := self.pipelines.get(page.task_id), ShardPipeline):
                    pipeline.give_files(page)
            case a.DrainPipeline(task_id) | a.GiveSplit(task_id) | a.GiveTurn(task_id):
                self._give(action, self.pipelines.get(task_id))

    def _give(self, action: a.Action, pipeline: Pipeline | PositionPipeline | None) -> None:
        match action, pipeline:
            case a.DrainPipeline(), Pipeline():
                pipeline.draining = True
            case a.GiveSplit(), Pipeline():
                pipeline.give_split(action.split)
            case a.GiveTurn(), PositionPipeline():
                pipeline.give_turn(action.turn)

    def _measure(self) -> None:
        for task in self.logic.tasks.values():
            self.most_buffered = max(self.most_buffered, task.buffer.nbytes)
            if isinstance(task.buffer, SlidingWindow):
                self.most_cached = max(self.most_cached, task.buffer.kept_bytes)
            for reader in task.readers.values():
                self.most_sent = max(self.most_sent, reader.kept_bytes + reader.backlog.nbytes)

    def _session_message(self, message: Any) -> None:
        self.refused = isinstance(message, m.Refused)
        if isinstance(message, m.WorkerWelcome):
            self.identity = WorkerIdentity(message.worker_id, message.key)
            self.ids.add(message.worker_id)
        self.do(self.logic.session_message(message, self.world.now))

    def _tick(self) -> None:
        now = self.world.now
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._heartbeat
            self.session.send(self.logic.heartbeat(now))
        self.do(self.logic.tick(now))
        if self._leaves_at is None:
            return
        if self.logic.drained or (now >= self._leaves_at and not self.logic.can_hurry):
            self.do(self.logic.leave())
            self.crash()
        elif now >= self._leaves_at:
            self.do(self.logic.hurry())
            self._leaves_at = now + HURRY_SECONDS

    def _page(self, request: m.ListSplits) -> m.SplitsPage:
        assert isinstance(self._plan, Plan)
        [files] = [x.files for x in self._plan.sources if x.number == request.source]
        values = files[request.start : request.start + PAGE_ENTRIES]
        return m.SplitsPage(
            request.listing_id,
            request.source,
            request.start,
            len(files),
            msgspec.Raw(msgspec.msgpack.encode(values)),
        )

    def _listed(self, answer: m.SplitsPage) -> None:
        self.do(self.logic.splits_listed(answer))

    def _open(self, start: m.TaskStart) -> None:
        if isinstance(start.mode, m.PositionTask):
            self._open_by_position(start)
            return

        def need_split(task_id: int, source: int, source_epoch: int) -> None:
            self.do(self.logic.need_split(task_id, source, source_epoch, self.world.now))

        def produced(task_id: int, chunk: Chunk) -> bool:
            if self.computed is not None:
                self.computed.setdefault(task_id, []).extend(elements_of(chunk))
            self.do(self.logic.produced(task_id, chunk))
            return self.logic.may_produce(task_id)

        def exhausted(task_id: int) -> None:
            self.do(self.logic.exhausted(task_id))

        def need_files(task_id: int, source: int, first: int) -> None:
            self.do(self.logic.need_files(task_id, source, first))

        assert isinstance(self._plan, Plan)
        kind = ShardPipeline if isinstance(start.mode, m.ShardTask) else Pipeline
        self.pipelines[start.task_id] = pipeline = kind(
            start,
            self._plan,
            random.Random(start.seed),
            self.seconds,
            self.process.after,
            need_split,
            produced,
            exhausted,
        )
        if isinstance(pipeline, ShardPipeline):
            pipeline.need_files = need_files

    def _open_by_position(self, start: m.TaskStart) -> None:
        assert isinstance(self._plan, EpochPlan)

        def need_turn(task_id: int) -> None:
            self.do(self.logic.need_turn(task_id))

        def produced(task_id: int, chunk: Chunk) -> bool:
            self.do(self.logic.produced(task_id, chunk))
            return self.logic.may_produce(task_id)

        self.pipelines[start.task_id] = PositionPipeline(
            start,
            self._plan,
            random.Random(start.task_id),
            self.seconds,
            self.process.after,
            need_turn,
            produced,
            self.died,
        )
