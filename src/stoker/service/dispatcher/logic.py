"""The dispatcher without I/O: messages and ticks in, actions out.

`received`, `disconnected`, `tick` and `call` return the actions of the shell. A request changes the
state by records (`state/records.py`, `state/ledger.py`); sessions, leases and waiting requests are
volatile and not recorded.
"""

import logging
import random

from stoker.errors import FailedPreconditionError, StokerError, to_record
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.actions import Action, EndSession, Send
from stoker.service.dispatcher.commits.journal_position import (
    JournalPositions,
    OutdatedJournalError,
)
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.iterations.assignment import TASKS_PER_CLIENT
from stoker.service.dispatcher.iterations.catalog import find_dataset, registered_id
from stoker.service.dispatcher.iterations.dataset_collector import DatasetCollector
from stoker.service.dispatcher.iterations.iteration_opening import IterationOpening
from stoker.service.dispatcher.iterations.iterations import Iterations
from stoker.service.dispatcher.peers.clients import Clients
from stoker.service.dispatcher.peers.operations import Operations
from stoker.service.dispatcher.peers.reports import Reports
from stoker.service.dispatcher.peers.status import StatusBuilder
from stoker.service.dispatcher.peers.supervisors import Supervisors
from stoker.service.dispatcher.peers.workers import Workers
from stoker.service.dispatcher.sessions.leases import Leases
from stoker.service.dispatcher.sessions.sessions import Sessions
from stoker.service.dispatcher.splits.split_assigner import SplitAssigner
from stoker.service.dispatcher.splits.split_listing import SplitListing
from stoker.service.dispatcher.state import state as s
from stoker.service.dispatcher.state.event_log import LogLine

__all__ = ["Action", "Dispatcher", "EndSession", "Send"]


LEAST_LEASE_SECONDS = 1.0
"""Silence for which a worker with an open session is not lost, however short its lease: a process
whose cores are busy may send nothing for as long, and one that dies closes its session."""

# No splits before the peers of the journal are back: the first peer could be given what another
# peer has begun. (docs/decisions/045)
RETURN_SECONDS = 3.0
"""Time for which a restarted dispatcher waits for the peers that it had before it gives splits, as
another one may know that its journal has lost records. They try at least every 2 s."""

SHORTEST_STALL = 1.0
"""Shortest time between two ticks that counts as a stall, in seconds: four of the shell's ticks."""


class Dispatcher:
    """Coordinate workers and clients; never run user code or unpickle.

    Args:
        config: timeouts and intervals.
        rng: generates ids and seeds.
        now: seconds, on the clock of all later calls.
        tasks_per_client: the most tasks that a client reads at a time.
        journaled: its records are stored; the shell gets them by `take_unit`.
        places_grow: as `Places.grows`.
        host: the host whose clock `now` is of, as `host_id` returns.
        state: rebuilt from the journal, to continue an earlier dispatcher.

    Attributes:
        state: the recorded state; read-only.
        assigner: holds the requests for splits that wait.
    """

    def __init__(
        self,
        config: DispatcherConfig,
        rng: random.Random,
        now: float,
        tasks_per_client: int = TASKS_PER_CLIENT,
        journaled: bool = False,
        state: s.State | None = None,
        places_grow: bool = False,
        host: str = "",
    ) -> None:
        self._journaled = journaled
        self._ledger = Ledger(rng, state, journaled)
        self._ledger.events.now = now
        self.state: s.State = self._ledger.state
        self.state.places.addresses = list(config.worker_addresses or [])
        self.state.places.grows = places_grow
        # The shorter of the leases: a stall must end neither.
        lease = min(config.worker_timeout_ms, config.client_timeout_ms) / 1000
        # Half a lease leaves the other half for the heartbeats that were not received.
        stall = max(lease / 2, SHORTEST_STALL)
        peer_timeout = config.peer_timeout_ms / 1000
        self._reports = Reports(self.state)
        self._sessions = Sessions(Leases(now, stall), peer_timeout)
        self.assigner = SplitAssigner(self._ledger, self._sessions)
        self._listing = SplitListing(self._ledger, self._sessions)
        shared = (self._ledger, self._sessions)
        collector = DatasetCollector(self._ledger)
        self._iterations = Iterations(
            config,
            *shared,
            self.assigner,
            listing=self._listing,
            collector=collector,
            tasks_per_client=tasks_per_client,
        )
        self._workers = Workers(
            config,
            *shared,
            listing=self._listing,
            iterations=self._iterations,
            reports=self._reports,
            journaled=journaled,
        )
        self._supervisors = Supervisors(config, *shared, self._workers)
        opening = IterationOpening(self._ledger, self._iterations, collector, host)
        self._clients = Clients(config, *shared, self._iterations, opening, journaled=journaled)
        self._operations = Operations(self.state, self._iterations, self._workers)
        self._status = StatusBuilder(*shared, self._reports, now, journaled=journaled)
        self._collection_interval = config.job_gc_check_interval
        self._next_collection = now + self._collection_interval
        self._positions = JournalPositions(self._ledger, config.work_dir)
        self._held: list[tuple[int, m.SplitRequest]] = []
        self._return_end = now + RETURN_SECONDS
        if state is not None:
            self._resume(config, now)

    # After a restart nobody is late: leases and idle times start anew. (docs/decisions/049)
    def _resume(self, config: DispatcherConfig, now: float) -> None:
        """Continue an earlier dispatcher; derive from the state the rest, which is not recorded."""
        # If the host of the earlier one died, its peers notice it after `peer_timeout_ms`.
        noticed = now + config.peer_timeout_ms / 1000
        if self._journaled:
            self._sessions.returning |= self.state.workers.keys() | self.state.clients.keys()
        for worker_id in self.state.workers:
            self._sessions.leases.grant(worker_id, config.worker_timeout_ms / 1000, noticed)
        for client_id in self.state.clients:
            self._sessions.leases.grant(client_id, config.client_timeout_ms / 1000, noticed)
        self._iterations.resume(now)

    @property
    def commits(self) -> int:
        """The number of changes of the state; after one, an exception leaves work undone."""
        return self._ledger.commits

    def take_unit(self) -> bytes:
        """Return the encoded records since the last call, which must be stored as a whole.

        The actions returned before may be executed when it is durable. ``b""``: nothing is to be
        stored.
        """
        return self._ledger.take_unit()

    def take_log(self) -> list[LogLine]:
        """Return the lines to log since the last call."""
        return self._ledger.events.take()

    def received(self, peer: int, message: m.ToDispatcher, now: float) -> list[Action]:
        """Handle a message on the session of `peer`.

        Raises:
            OutdatedJournalError: if the dispatcher must end.
        """
        self._begin(now)
        self._receive_or_refuse(peer, message, now)
        return self._take_actions()

    def _receive_or_refuse(self, peer: int, message: m.ToDispatcher, now: float) -> None:
        try:
            self._receive(peer, message, now)
        except OutdatedJournalError:
            raise
        except StokerError as error:
            self._sessions.refuse(peer, error)

    def refuse(self, peer: int, error: StokerError) -> list[Action]:
        """End a session with an error, after an exception of `received`."""
        self._sessions.refuse(peer, error)
        return self._take_actions()

    def disconnected(self, peer: int, now: float) -> list[Action]:
        """Handle a broken session. Its holder keeps its lease and may open another session."""
        self._begin(now)
        self._sessions.disconnected(peer, now)
        self._supervisors.disconnected(peer)
        return self._take_actions()

    def tick(self, now: float) -> list[Action]:
        """Expire leases and collect iterations without clients."""
        self._begin(now)
        if now >= self._return_end:
            self._sessions.returning.clear()
        self._listing.free_pages()
        for holder in self._expired(now):
            if holder in self.state.workers:
                if not self._sessions.is_late(holder, LEAST_LEASE_SECONDS, now):
                    self._workers.expired(holder)
            else:
                self._clients.expired(holder, now)
        self._iterations.warn(now)
        self.assigner.reclaim(now)
        if now >= self._next_collection:
            self._next_collection = now + self._collection_interval
            self._iterations.collect(now)
        return self._take_actions()

    def _expired(self, now: float) -> list[int]:
        """Return the workers and clients whose lease has expired."""
        leases = self._sessions.leases
        paused = leases.paused
        expired = self._sessions.expired(now)
        if leases.paused and not paused:
            seconds = leases.idle_seconds(now)
            text = (
                f"no message of any worker or client was received for {round(seconds, 1):g} s: "
                "the network of this machine has failed, or they ended together; none is removed "
                "until one sends a message; check the network, and run `stoker doctor` elsewhere"
            )
            self._ledger.events.add(logging.WARNING, text)
        return expired

    @property
    def has_work(self) -> bool:
        """True if `work` has something to do."""
        return self._sessions.has_work

    def work(self, now: float) -> list[Action]:
        """Continue with long work; call it while `has_work`, and let others run in between."""
        self._begin(now)
        self._sessions.work()
        return self._take_actions()

    def stop(self) -> list[Action]:
        """Notify the clients that the dispatcher ends; with a journal they wait for the next."""
        for client_id in () if self._journaled else self.state.clients:
            self._sessions.send(client_id, m.DispatcherStopped())
        return self._take_actions()

    def call(self, request: m.Request, now: float) -> tuple[m.Reply, list[Action]]:
        """Answer a request that needs no session."""
        self._begin(now)
        try:
            reply = self._answer(request, now)
        except StokerError as error:
            reply = m.Failed(to_record(error))
        return reply, self._take_actions()

    def _begin(self, now: float) -> None:
        """Begin a call at `now`, which may be the first one after a stall."""
        self._ledger.events.now = now
        self._sessions.leases.note_stall(now)

    def _take_actions(self) -> list[Action]:
        """Return the actions, after what waited is done.

        While peers of an earlier dispatcher return, no message has a position of the journal: if
        one of them ends this dispatcher, the others must be no obstacle to its successor.
        """
        if self._held and not self._sessions.returning:
            held, self._held = self._held, []
            for peer, request in held:
                if self._sessions.holder(peer) is not None:
                    self._receive_or_refuse(peer, request, self._ledger.events.now)
        self._iterations.advance()
        actions = self._sessions.take_actions()
        has_position = self._journaled and not self._sessions.returning
        return self._positions.attach(actions) if has_position else actions

    def _receive(self, peer: int, message: m.ToDispatcher, now: float) -> None:
        if isinstance(message, m.WorkerHello | m.ClientHello | m.SupervisorHello):
            self._hello(peer, message, now)
        elif self._sessions.has_ended(peer):
            return  # sent before the peer knew of the end; it opens another session
        elif self._supervisors.connected(peer):
            self._supervisors.received(message, now)
        elif (holder := self._sessions.holder(peer)) is None:
            if isinstance(message, m.Heartbeat) and self._sessions.is_opening(peer):
                return  # of a client that a dispatcher before this one knew
            raise FailedPreconditionError(
                "a session must open with WorkerHello, ClientHello or SupervisorHello, not "
                f"{type(message).__name__}"
            )
        else:
            # Every message renews the lease: a heartbeat may wait behind a long one.
            self._sessions.leases.renew(holder, now)
            if isinstance(message, m.Heartbeat):
                self._reports.received(holder, message, now)
                self._sessions.heartbeat(holder)
            if isinstance(message, m.SplitRequest) and self._sessions.returning:
                self._held.append((peer, message))
            elif holder in self.state.workers:
                self._workers.received(holder, message, now)
            else:
                self._clients.received(holder, message, now)

    def _hello(
        self, peer: int, hello: m.WorkerHello | m.ClientHello | m.SupervisorHello, now: float
    ) -> None:
        # Before anything is recorded: a worker or client without a session would have no lease.
        if self._supervisors.connected(peer) or self._sessions.holder(peer) is not None:
            raise FailedPreconditionError("a session opens with one hello only")
        self._positions.check(hello)
        if isinstance(hello, m.WorkerHello):
            self._workers.hello(peer, hello, now)
        elif isinstance(hello, m.ClientHello):
            self._clients.hello(peer, hello, now)
        else:
            self._supervisors.hello(peer, hello)

    def _answer(self, request: m.Request, now: float) -> m.Reply:
        if isinstance(request, m.RegisterDataset):
            return m.DatasetRegistered(registered_id(self._ledger, request, kept=True))
        if isinstance(request, m.GetDataset):
            dataset = find_dataset(self.state, request.dataset_id)
            # A tree may have megabytes, which clients that read by the id do not need.
            tree = dataset.tree if request.with_tree else b""
            return m.DatasetReply(
                tree,
                dataset.spec,
                dataset.options,
                size=dataset.size,
                compression=dataset.compression,
                structure=dataset.structure,
                positions=dataset.positions,
                seeds=dataset.seeds,
            )
        if isinstance(request, m.CancelJob):
            return self._operations.cancel_job(request, now)
        if isinstance(request, m.ForgetDataset):
            return self._operations.forget_dataset(request)
        if isinstance(request, m.DrainWorker):
            return self._operations.drain_worker(request)
        if isinstance(request, m.GetStatus):
            return self._status.answer(request, now)
        if isinstance(request, m.CloseClient):
            self._clients.close(request, now)
            return m.ClientClosed()
        return m.ClusterReply(list(self.state.addresses))
