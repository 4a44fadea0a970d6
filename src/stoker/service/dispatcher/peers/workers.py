"""Workers: registered, resumed after a broken session, and lost."""

from stoker.errors import AlreadyExistsError, InvalidArgumentError
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.iterations.iterations import Iterations
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.peers.reports import Reports
from stoker.service.dispatcher.sessions.sessions import Sessions, check_key, negotiate
from stoker.service.dispatcher.splits.split_listing import SplitListing
from stoker.service.dispatcher.state import records as r


class Workers:
    """Handle the messages and the leases of workers."""

    def __init__(
        self,
        config: DispatcherConfig,
        ledger: Ledger,
        sessions: Sessions,
        listing: SplitListing,
        iterations: Iterations,
        reports: Reports,
        *,
        journaled: bool,
    ) -> None:
        self._timeout_ms = config.worker_timeout_ms
        self._journaled = journaled
        self._ledger = ledger
        self._state = ledger.state
        self._sessions = sessions
        self._listing = listing
        self._iterations = iterations
        self._reports = reports
        self._newest_sessions: dict[int, int] = {}

    def hello(self, peer: int, hello: m.WorkerHello, now: float) -> None:
        """Register a new worker, or resume one that lost its session.

        Raises:
            FailedPreconditionError: if there is no common protocol version, or no place for it
                among the configured addresses.
            PermissionDeniedError: if it does not have the key of the worker that it resumes.
            InvalidArgumentError: if it has no address.
            AlreadyExistsError: if a live worker has its address, or it has opened a newer session.
        """
        protocol = negotiate(hello.protocol_min, hello.protocol_max)
        if not hello.address:
            raise InvalidArgumentError("`address` of a worker must not be empty")
        worker_id = self._known(hello)
        known = worker_id is not None
        if worker_id is None:
            worker_id = self._register(hello, now)
        # Messages of an older session may arrive later, from a connection that was slow.
        self._newest_sessions[worker_id] = hello.session
        self._reports.welcomed(worker_id, hello)
        worker = self._state.workers[worker_id]
        heartbeat_ms = self._sessions.attach(peer, worker_id, self._timeout_ms, now)
        self._sessions.send(
            worker_id,
            m.WorkerWelcome(
                protocol,
                worker_id,
                self._ledger.journal_id,
                heartbeat_ms=heartbeat_ms,
                key=worker.added.key,
                journaled=self._journaled,
            ),
        )
        if known:
            self._ledger.events.worker_resumed(worker, hello.reason)
            self._resume(worker, hello)
        if hello.draining:
            self._drain(worker_id)
        elif worker.draining:
            # The message in the session before may be lost.
            self._sessions.send(worker_id, m.Drain())
        self._iterations.worker_added(worker)

    def _known(self, hello: m.WorkerHello) -> int | None:
        """Return the id of a worker that opens another session; ``None`` for a new worker.

        Raises:
            PermissionDeniedError: if it does not have the key of the worker that it names.
            AlreadyExistsError: if it has opened a newer session.
        """
        worker_id = hello.worker_id
        worker = None
        # An id of another journal names something else here.
        if worker_id is not None and hello.journal_id == self._ledger.journal_id:
            worker = self._state.workers.get(worker_id)
        if worker_id is not None and worker is not None and worker.added.address == hello.address:
            check_key(hello.key, worker.added.key, f"worker {worker_id}")
            known = worker_id
        elif (found := self._of_instance(hello)) is not None:
            # The answer to its registration did not reach it. From another journal, only if it was
            # registered by this process: before, it may have begun splits that it has dropped.
            if worker_id is not None and found not in self._newest_sessions:
                return None
            known = found
        else:
            return None
        if hello.session < self._newest_sessions.get(known, 0):
            raise AlreadyExistsError("this worker has opened a newer session")
        return known if self._state.places.keeps(self._state.workers[known].added) else None

    # A worker whose welcome was lost would otherwise replace itself and lose the splits that it had
    # begun. (docs/decisions/059)
    def _of_instance(self, hello: m.WorkerHello) -> int | None:
        """Return the worker at the address of a hello if it is the same process."""
        found = self._state.addresses.get(hello.address)
        if found is None or not hello.instance:
            return None
        return found if self._state.workers[found].added.instance == hello.instance else None

    def received(self, worker_id: int, message: m.ToDispatcher, now: float) -> None:
        """Handle a message on the session of a worker.

        Raises:
            StokerError: if the message is not valid.
        """
        if isinstance(message, m.TaskRequest):
            worker = self._state.workers[worker_id]
            task = worker.tasks.get(message.task_id)
            if task is not None and task.running:
                self._iterations.task_requested(task, message, draining=worker.draining)
        elif isinstance(message, m.SplitsPage | m.ListingFailed):
            self._iterations.splits_listed(worker_id, message)
        elif isinstance(message, m.TaskProgress):
            task = self._state.workers[worker_id].tasks.get(message.task_id)
            if task is not None:
                if message.computed is not None:
                    self._reports.add(worker_id, {message.task_id: message.computed})
                self._iterations.task_progressed(task, message)
        elif isinstance(message, m.WorkerDraining):
            self._drain(worker_id)
        elif isinstance(message, m.WorkerLeave):
            # First: the totals are those of tasks that the loss takes from the worker.
            self._reports.add(worker_id, message.computed)
            self.lose(worker_id, m.STOPPED, message.undelivered)

    def ask_to_drain(self, worker_id: int) -> None:
        """Let a worker drain and leave; one that is not connected is asked when it is."""
        if not self._state.workers[worker_id].draining:
            self._drain(worker_id)
            self._sessions.send(worker_id, m.Drain())

    def expired(self, worker_id: int) -> None:
        """Remove a worker whose lease has expired."""
        self.lose(worker_id, f"no heartbeat for {self._timeout_ms / 1000:g} s")

    def _drain(self, worker_id: int) -> None:
        """Give a worker that will stop no more tasks and splits."""
        worker = self._state.workers[worker_id]
        if worker.draining:
            return
        self._ledger.commit(r.WorkerDrainBegun(worker_id))
        self._iterations.take_splits_back(worker.tasks.values())

    def lose(self, worker_id: int, reason: str, undelivered: dict[int, int] | None = None) -> None:
        """Remove a worker for good; if it opens a session again, it is a new worker.

        Args:
            worker_id: the worker.
            reason: completes "worker ... was lost: ".
            undelivered: as in `WorkerLeave`.
        """
        self._newest_sessions.pop(worker_id, None)
        self._iterations.lose_worker(worker_id, reason, undelivered or {})

    def died(self, report: m.WorkerDied) -> None:
        """Remove a worker whose process has died, and record the calls that may have ended it."""
        how = report.how or "its process ended"
        tasks = self._state.workers[report.worker_id].tasks
        for task_id, in_flight in report.calls.items():
            task = tasks.get(task_id)
            # Ranges that are not possible would be refused as a record, after others were recorded.
            calls = [each for each in in_flight if 0 <= each.first < each.stop]
            if task is None or not (task.running and calls):
                continue
            if mode_of(task.iteration.parameters).repeats_elements:
                self._ledger.commit(r.TaskDied(task_id, calls, report.alone, how))
        self.lose(report.worker_id, how)

    def _register(self, hello: m.WorkerHello, now: float) -> int:
        older = self._state.addresses.get(hello.address)
        if older is not None:
            same = self._of_instance(hello) is not None
            if not same and self._holds_address(older, hello, now):
                raise AlreadyExistsError(
                    f"another worker serves {hello.address}; give each worker its own address "
                    "(`worker_address`, `port`)"
                )
            # Two workers cannot serve one address: the older one is dead before its lease ends.
            self.lose(older, "it starts over" if same else "another process took its address")
        places = self._state.places
        place = places.find(
            hello.address,
            lambda worker_id: self._sessions.misses_heartbeats(worker_id, now),
            self._sessions.connected,
        )
        if place in places.workers:
            reason = f"the worker at {hello.address} took its place"
            self.lose(places.workers[place].worker_id, reason)
        worker_id = self._ledger.new_id()
        self._ledger.commit(
            r.WorkerAdded(
                worker_id,
                hello.address,
                hello.data_transfer_addresses,
                tags=hello.tags,
                versions=hello.versions,
                instance=hello.instance,
                key=self._ledger.new_key(),
                place=place,
            )
        )
        return worker_id

    # A process gets the address of a dead worker immediately after a crash, whose connection the
    # kernel closes. (docs/decisions/060)
    def _holds_address(self, older: int, hello: m.WorkerHello, now: float) -> bool:
        """Return whether a worker keeps its address from another process that wants it.

        From a process that was a worker here before, as long as it is connected: it was replaced
        but lives, and replacing each other would never end. From a new process, for three
        heartbeats after its last sign of life: it may have died without closing its connection.
        """
        if hello.worker_id is not None:
            return self._sessions.connected(older)
        return self._sessions.is_live(older, now)

    def _resume(self, worker: e.WorkerEntry, hello: m.WorkerHello) -> None:
        """Compare the worker's tasks with the state and repeat messages that may be lost.

        Splits it had not begun are taken back; it asks again for what it needs.
        """
        worker_id, tasks = worker.added.worker_id, worker.tasks
        self._iterations.take_splits_back(tasks.values())
        # These tasks were stopped while the worker had no session.
        for task_id in set(hello.tasks) - set(tasks):
            self._sessions.send(worker_id, m.TaskStop(task_id))
        for task_id, task in tasks.items():
            mode = mode_of(task.iteration.parameters)
            if task.running and task_id not in hello.tasks:
                self._sessions.send(worker_id, mode.task_start(task))
            current = {*task.readers.values(), *task.leaving.values()}
            for reader_id in hello.readers.get(task_id, ()):
                if reader_id not in current and not task.over:
                    consumed = task.iteration.left.get(reader_id, {}).get(task_id)
                    released = m.ClientReleased(task_id, reader_id, consumed)
                    self._sessions.send(worker_id, released)
            for lacking in mode.sharing.lacking(task):
                self._sessions.send(worker_id, lacking)
        self._listing.resend(worker_id, hello.listings)
