"""A dispatcher's logic with many workers, jobs and clients, and the CPU time of each call."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from stoker.dataset.options import Options
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, Source
from stoker.dataset.tree.structure import WireNode, structure_of
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.iterations.assignment import TASKS_PER_CLIENT
from stoker.service.dispatcher.logic import Dispatcher, Send
from stoker.service.rules.processing_modes import ShardingPolicy
from stoker.service.worker.pipelines.listing import PAGE_ENTRIES

LISTED = ListedSplits()
"""The splits of a dataset of files, for `Cluster`."""

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
        most: the most tasks that a client has read at a time.
        computed: the clients that know that all is computed.
        heartbeats: worker or client → the interval it was sent, in milliseconds.
        warnings: client → the warnings for its user.
        to_workers: worker → the other messages it was sent.
        client_ids: client → its id.
        lists: workers with the pages that they are asked for.
        on_tasks: called with each `Tasks` message.
    """

    def __init__(
        self,
        splits: int | ListedSplits,
        tasks_per_client: int = TASKS_PER_CLIENT,
        size: int = UNKNOWN_CARDINALITY,
        **config: Any,
    ) -> None:
        self.now = 0.0
        self.logic = Dispatcher(
            DispatcherConfig(**{"worker_timeout_ms": 10**9, "client_timeout_ms": 10**9} | config),
            random.Random(0),
            0.0,
            tasks_per_client,
        )
        self.longest: dict[str, float] = {}
        self.seconds = 0.0
        self.sent = 0
        self.most = 0
        self.started: dict[int, list[m.TaskStart]] = {}
        self.tasks: dict[int, dict[int, m.TaskInfo]] = {}
        self.computed: set[int] = set()
        self.heartbeats: dict[int, int] = {}
        self.warnings: dict[int, list[str]] = {}
        self.to_workers: dict[int, list[m.ToWorker]] = {}
        self.client_ids: dict[int, int] = {}
        self.lists: list[tuple[int, m.ListSplits]] = []
        self.on_tasks: Callable[[m.Tasks], None] = lambda _: None
        self._peers = 0
        self._leaving: list[tuple[int, m.TaskLeft]] = []
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
            size=size,
            structure=structure_of(TREE),
        )
        self.logic.call(request, 0.0)

    def add_workers(self, count: int, process: str = "", tags: Sequence[str] = ()) -> list[int]:
        """Register workers; return their sessions."""
        return [self._add_worker(process, list(tags)) for _ in range(count)]

    def _add_worker(self, process: str, tags: list[str]) -> int:
        self._peers += 1
        peer = self._peers
        address = f"host{peer}:5051"
        self.started[peer], self.to_workers[peer] = [], []
        addresses = {"tcp": address} | ({"local": f"{process}/{peer}"} if process else {})
        self.say(peer, m.WorkerHello(1, 1, address, addresses, VERSIONS, tags))
        return peer

    def add_clients(
        self,
        count: int,
        job: str,
        mode: ShardingPolicy = ShardingPolicy.DYNAMIC,
        process: str = "",
        target_workers: str = "AUTO",
    ) -> list[int]:
        """Open a job with clients; return their sessions."""
        parameters = m.JobParameters(mode, target_workers)
        hello = m.ClientHello(1, 1, "data", job, parameters, (0,), named=True, process=process)
        peers = []
        for _ in range(count):
            self._peers += 1
            peers.append(self._peers)
            self.tasks[self._peers] = {}
            self.say(self._peers, hello)
        return peers

    def say(self, peer: int, message: m.ToDispatcher) -> None:
        """Send a message, and receive the answers."""
        self._receive(self._timed(type(message).__name__, self.logic.received, peer, message))

    def work(self) -> None:
        """Let the dispatcher finish what it does in slices."""
        while self.logic.has_work or self._leaving:
            if self.logic.has_work:
                self._receive(self._timed("slice", self.logic.work))
            leaving, self._leaving = self._leaving, []
            for peer, message in leaving:
                self.say(peer, message)

    def tick(self, seconds: float = 0.25) -> None:
        """Let time pass."""
        for _ in range(round(seconds / 0.25)):
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
        elif isinstance(message, m.ClientWelcome):
            self.client_ids[peer] = message.client_id
        elif isinstance(message, m.ListSplits):
            self.lists.append((peer, message))
        elif isinstance(message, m.HeartbeatInterval):
            self.heartbeats[peer] = message.heartbeat_ms
        elif isinstance(message, m.Tasks):
            self.on_tasks(message)
            for info in message.added:
                self.tasks[peer][info.task_id] = info
            self.most = max(self.most, len(self.tasks[peer]))
            for task_id, reader_id in message.leave.items():
                del self.tasks[peer][task_id]
                self._leaving.append((peer, m.TaskLeft(task_id, reader_id, (0, 0))))
            for lost in message.lost:
                self.tasks[peer].pop(lost.task_id, None)
            if message.warning:
                self.warnings.setdefault(peer, []).append(message.warning)
            if message.computed:
                self.computed.add(peer)
            else:
                self.computed.discard(peer)
        elif peer in self.to_workers:
            self.to_workers[peer].append(message)

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
