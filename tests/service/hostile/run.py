"""A dispatcher's logic that receives random messages, losses of sessions and restarts."""

import random
from typing import Any

import msgspec

from stoker.dataset.options import Options
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, Source
from stoker.dataset.tree.structure import WireNode
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.errors import StokerError
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.control import rpc
from stoker.service.dispatcher.actions import EndSession, Send
from stoker.service.dispatcher.logic import Dispatcher
from stoker.service.dispatcher.state.snapshot import dump, load
from stoker.service.rules.processing_modes import ShardingPolicy
from tests.service.hostile.messages import Messages, members
from tests.simulation.shadow import Shadow

VERSIONS = m.Versions("3.11", "2")
TREE = msgspec.msgpack.encode([WireNode("sim", [], msgspec.Raw(b"\x80"), {}, "")])
PEERS = 10
"""Sessions that are open at a time."""

SENDERS = [members(m.FromWorker), members(m.FromClient), members(m.FromSupervisor)]
"""The types of messages on a session, by sender; the first is the hello."""

HELLOS = [kinds[0] for kinds in SENDERS]

EVERYTHING = members(m.ToDispatcher)

REQUESTS = [x for x in members(m.Request) if x is not m.Probe]
"""Calls of the logic; the shell answers `Probe`."""

CHECKED = 1000
"""Steps after which the state is compared with the replay of its records, and a restart may be."""


def registration(digest: str, sources: list[Source]) -> m.RegisterDataset:
    """Return a dataset of which workers can compute each source."""
    spec, options = spec_to_wire(UnknownSpec()), Options(finite_coordinated=True)
    return m.RegisterDataset(
        digest, TREE, spec, options, sources, dataset_id=digest, file_sources=sources
    )


def honest_messages() -> list[Any]:
    """Return messages that a dispatcher accepts."""
    data = registration("data", [Source(0, "sim", "train.py:1", IndexSplits(40))])
    files = registration("files", [Source(0, "sim", "train.py:1", ListedSplits())])
    workers = [
        m.WorkerHello(1, 1, f"host:{x}", {"tcp": f"host:{x}"}, VERSIONS, version="1")
        for x in range(3)
    ]
    clients = [
        m.ClientHello(1, 1, data.dataset_id, f"{mode.name}", m.JobParameters(mode), (0,), True)
        for data in (data, files)
        for mode in ShardingPolicy
    ]
    in_step = m.JobParameters(ShardingPolicy.OFF, num_consumers=2)
    consumers = [
        m.ClientHello(1, 1, "data", "in step", in_step, (0,), named=True, consumer_index=index)
        for index in (0, 1)
    ]
    page = m.SplitsPage(0, 0, 0, 2, msgspec.Raw(msgspec.msgpack.encode(["a", "b"])))
    return [data, files, *workers, *clients, *consumers * 8, m.SupervisorHello(1, 1), page]


class HostileRun:
    """A dispatcher and its sessions.

    Args:
        seed: the same seed repeats the run.

    Attributes:
        messages: draws the messages.
        accepted: the number of messages and calls that were not refused.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.messages = Messages(self._rng, honest_messages())
        self.accepted = 0
        self._config = DispatcherConfig(
            worker_addresses=["host:0", "host:1"],
            job_gc_check_interval_ms=60_000,
            job_gc_timeout_ms=60_000,
            gc_dynamic_sharding_jobs=True,
        )
        self._now = 0.0
        self._steps = 0
        self._last_peer = 0
        self._shadow = Shadow()
        self._start(None)

    def _start(self, parts: list[bytes] | None) -> None:
        state = None if parts is None else load(parts)
        self._shadow = Shadow(parts)
        self.logic = Dispatcher(
            self._config, self._rng, self._now, journaled=True, state=state, places_grow=True
        )
        self._peers: list[int] = []
        self._commits_before = 0
        refuse = self.logic._sessions.refuse

        def checked_refuse(peer: int, error: StokerError) -> None:
            self._check_unchanged(error)
            refuse(peer, error)

        self.logic._sessions.refuse = checked_refuse  # type: ignore[method-assign]
        for _ in range(PEERS):
            self._open()

    def _open(self) -> None:
        self._last_peer += 1
        self._peers.append(self._last_peer)

    def step(self) -> None:
        """Do one random thing."""
        self._steps += 1
        chance = self._rng.random()
        if chance < 0.02:
            self._disconnect(self._rng.choice(self._peers))
        elif chance < 0.12:
            self.pass_time(self._rng.choice([0.25] * 20 + [5.0, 15.0, 70.0]))
        elif chance < 0.25:
            self.call(self.messages.message(self._rng.choice(REQUESTS)))
        else:
            peer = self._rng.choice(self._peers)
            kinds = EVERYTHING if self._rng.random() < 0.03 else self._usual(peer)
            self.say(peer, self.messages.message(self._rng.choice(kinds)))
        if self._steps % CHECKED == 0:
            self.check()

    def _usual(self, peer: int) -> list[type]:
        """Return the types of messages that the peer of a session sends."""
        holder = self.logic._sessions.holder(peer)
        of_worker, of_client, of_supervisor = SENDERS
        if self.logic._supervisors.connected(peer):
            return of_supervisor[1:]
        if holder is None:
            return HELLOS
        return (of_worker if holder in self.logic.state.workers else of_client)[1:]

    def session_for(self, kind: type) -> int:
        """Return a session whose peer sends messages of a type; open it if there is none."""
        hello = next(kinds[0] for kinds in SENDERS if kind in kinds)
        while True:
            for peer in self._peers:
                if kind in self._usual(peer):
                    return peer
            self._disconnect(self._rng.choice(self._peers))
            self.say(self._peers[-1], self.messages.message(hello))

    def say(self, peer: int, message: Any) -> None:
        """Deliver a message on a session, as its bytes say."""
        message = rpc.decode_to_dispatcher(rpc.encode(message))
        self._commits_before = self.logic.commits
        self.accepted += 1
        self._carry_out(self.logic.received(peer, message, self._now))

    def call(self, request: Any) -> m.Reply:
        """Make a call, as its bytes say."""
        request = rpc.decode_request(rpc.encode(request))
        self._commits_before = self.logic.commits
        reply, actions = self.logic.call(request, self._now)
        self.accepted += 1
        if isinstance(reply, m.Failed):
            self._check_unchanged(reply.error)
        rpc.decode_reply(rpc.encode(reply))
        self._carry_out(actions)
        return reply

    def _check_unchanged(self, error: Any) -> None:
        self.accepted -= 1
        assert self.logic.commits == self._commits_before, f"refused after a change: {error}"

    def pass_time(self, seconds: float) -> None:
        """Tick after a time."""
        self._now += seconds
        self._carry_out(self.logic.tick(self._now))

    def check(self) -> None:
        """Compare the state with its replay, ask for the status, and restart from the journal."""
        assert self._shadow.differences(self.logic.state) == []
        reply = self.call(m.GetStatus())
        assert isinstance(reply, m.StatusReply), reply
        if self._rng.random() < 0.3:
            self._start(list(dump(self.logic.state)))

    def _carry_out(self, actions: list[Any]) -> None:
        while self.logic.has_work:
            actions = [*actions, *self.logic.work(self._now)]
        self.logic.take_log()
        self._shadow.add(self.logic.take_unit())
        for action in actions:
            if isinstance(action, Send):
                message = rpc.decode_from_dispatcher(rpc.encode(action.message))
                self.messages.learn(message)
            elif isinstance(action, EndSession) and action.peer in self._peers:
                self._disconnect(action.peer)

    def _disconnect(self, peer: int) -> None:
        """Lose a session, and open another."""
        self._peers.remove(peer)
        self._carry_out(self.logic.disconnected(peer, self._now))
        self._open()
