"""A dispatcher's logic with many workers, jobs and clients, and the CPU time of each call."""

import random
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from stoker.dataset.options import Options
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, Source
from stoker.dataset.tree.structure import WireNode, structure_of
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig, ShardingPolicy
from stoker.service.dispatcher.logic import Dispatcher, Send
from stoker.service.worker.listing import PAGE_ENTRIES

VERSIONS = m.Versions("3.11", "2")
TREE = msgspec.msgpack.encode([WireNode("sim", [], msgspec.Raw(b"\x80"), {}, "")])


class Cluster:
    """Workers and clients that answer a dispatcher's logic, in one thread.

    Attributes:
        longest: the longest CPU time of one call of the logic, in seconds, by message type.
        seconds: the CPU time of all calls of the logic.
        started: worker → the tasks that were started there.
        sent: the number of messages of the dispatcher.
        tasks: client → the tasks it reads.
        computed: the clients that know that all is computed.
        heartbeats: worker or client → the interval it was sent, in milliseconds.
        lists: workers with the pages that they are asked for.
    """

    def __init__(self, splits: int | ListedSplits, **config: Any) -> None:
        self.now = 0.0
        self.logic = Dispatcher(
            DispatcherConfig(**{"worker_timeout_ms": 10**9, "client_timeout_ms": 10**9} | config),
            random.Random(0),
            0.0,
        )
        self.longest: dict[str, float] = {}
        self.seconds = 0.0
        self.sent = 0
        self.started: dict[int, list[m.TaskStart]] = {}
        self.tasks: dict[int, dict[int, m.TaskInfo]] = {}
        self.computed: set[int] = set()
        self.heartbeats: dict[int, int] = {}
        self.lists: list[tuple[int, m.ListSplits]] = []
        self._peers = 0
        how = IndexSplits(splits) if isinstance(splits, int) else splits
        sources = [Source(0, "sim", "train.py:1", how)]
        spec = spec_to_wire(UnknownSpec())
        request = m.RegisterDataset(
            "digest",
            TREE,
            spec,
            Options(),
            sources,
            dataset_id="data",
            structure=structure_of(TREE),
        )
        self.logic.call(request, 0.0)

    def add_workers(self, count: int) -> list[int]:
        """Register workers; return their sessions."""
        return [self._add_worker() for _ in range(count)]

    def _add_worker(self) -> int:
        self._peers += 1
        peer = self._peers
        address = f"host{peer}:5051"
        self.started[peer] = []
        self.say(peer, m.WorkerHello(1, 1, address, {"tcp": address}, VERSIONS))
        return peer

    def add_clients(
        self, count: int, job: str, mode: ShardingPolicy = ShardingPolicy.DYNAMIC
    ) -> list[int]:
        """Open a job with clients; return their sessions."""
        parameters = m.JobParameters(mode)
        peers = []
        for _ in range(count):
            self._peers += 1
            peers.append(self._peers)
            self.tasks[self._peers] = {}
            self.say(self._peers, m.ClientHello(1, 1, "data", job, parameters, (0,), named=True))
        return peers

    def say(self, peer: int, message: m.ToDispatcher) -> None:
        """Send a message, and receive the answers."""
        self._receive(self._timed(type(message).__name__, self.logic.received, peer, message))

    def work(self) -> None:
        """Let the dispatcher finish what it does in slices."""
        while self.logic.has_work:
            self._receive(self._timed("slice", self.logic.work))

    def tick(self) -> None:
        """Let time pass."""
        self.now += 0.25
        self._receive(self._timed("tick", self.logic.tick))

    def _timed(self, name: str, call: Any, *arguments: Any) -> list[Any]:
        start = time.thread_time()
        actions: list[Any] = call(*arguments, self.now)
        seconds = time.thread_time() - start
        self.seconds += seconds
        self.longest[name] = max(self.longest.get(name, 0.0), seconds)
        return actions

    def _receive(self, actions: list[Any]) -> None:
        self.sent += len(actions)
        for action in actions:
            if isinstance(action, Send):
                self._hear(action.peer, action.message)

    def _hear(self, peer: int, message: Any) -> None:
        if isinstance(message, m.TaskStart):
            self.started[peer].append(message)
        elif isinstance(message, m.ListSplits):
            self.lists.append((peer, message))
        elif isinstance(message, m.HeartbeatInterval):
            self.heartbeats[peer] = message.heartbeat_ms
        elif isinstance(message, m.Tasks):
            for info in message.added:
                self.tasks[peer][info.task_id] = info
            if message.computed:
                self.computed.add(peer)

    def running(self) -> Iterator[tuple[int, m.TaskStart]]:
        """Yield the session of each worker with each of its tasks."""
        for peer, starts in self.started.items():
            for start in starts:
                yield peer, start


class FileLister:
    """Answers of workers that are asked for pages of file names, of 57 bytes each."""

    def __init__(self, cluster: Cluster, files: int) -> None:
        self._cluster = cluster
        self._files = files

    def run(self) -> None:
        """Send the pages that the dispatcher asks for, until it asks for no more."""
        while self._cluster.lists:
            peer, request = self._cluster.lists.pop()
            stop = min(request.start + PAGE_ENTRIES, self._files)
            names = [
                f"gs://bucket/some/path/train-{k:08d}-of-{self._files:08d}.tfrecord"
                for k in range(request.start, stop)
            ]
            page = m.SplitsPage(
                request.listing_id,
                request.source,
                request.start,
                self._files,
                msgspec.Raw(msgspec.msgpack.encode(names)),
            )
            self._cluster.say(peer, page)
