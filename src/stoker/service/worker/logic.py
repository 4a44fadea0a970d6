"""The worker without I/O: messages of dispatcher, clients and pipelines in, actions out.

The shell (`shell.py`) executes the actions and reports events. A *connection* is the shell's number
of one data connection. All methods return the actions to execute, in order.
"""

import msgspec

from stoker.errors import NotFoundError, StokerError, UnavailableError
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.loading import Loading
from stoker.service.task_evidence import TaskEvidence
from stoker.service.worker import actions as a
from stoker.service.worker.buffers.buffer_policies import DEFAULT_CACHE_BYTES
from stoker.service.worker.outbox import Outbox
from stoker.service.worker.readers.client_connections import ClientConnections
from stoker.service.worker.tasks.reader import Reader
from stoker.service.worker.tasks.round_trip import RoundTrip
from stoker.service.worker.tasks.shard_files import ShardFiles
from stoker.service.worker.tasks.task import NOTHING_COMPUTED, Task
from stoker.service.worker.tasks.task_splits import TaskSplits
from stoker.service.worker.wants.task_turns import TaskTurns
from stoker.wire import frames as f


class Worker:
    """Runs tasks and serves what they produce.

    Args:
        hello: the worker's hello to the dispatcher.
        buffer_bytes: about how many bytes a task computes ahead of its readers, and how many each
            reader may be sent ahead of its user.
        peer_timeout_ms: time in which both ends of a connection notice an unreachable peer.
        cache_bytes: about how many bytes each task keeps for other trainers in a cross-trainer
            cache.

    Attributes:
        tasks: the tasks by id.
        listings: the lists of splits that it makes and keeps.
        clients: the connections of its clients.
    """

    def __init__(
        self,
        hello: m.WorkerHello,
        buffer_bytes: int,
        peer_timeout_ms: int = 10_000,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        self.tasks: dict[int, Task] = {}
        self.listings: set[int] = set()
        self._outbox = Outbox()
        self._splits = TaskSplits(self.tasks, self._outbox)
        self._files = ShardFiles(self.tasks, self._outbox)
        self._turns = TaskTurns(self.tasks, self._outbox, buffer_bytes)
        self.clients = ClientConnections(
            self.tasks, self._outbox, hello.address, buffer_bytes, peer_timeout_ms
        )
        self._hello = hello
        self._journal_position: m.JournalPosition | None = None
        self._buffer_bytes = buffer_bytes
        self._cache_bytes = cache_bytes
        self._journaled = False
        self._round_trip = RoundTrip()
        self._reported: dict[int, m.TaskReport] = {}

    @property
    def worker_id(self) -> int:
        """The id that the dispatcher assigned; 0 before that."""
        return self._hello.worker_id or 0

    # ── the end ───────────────────────────────────────────────────────────────────────────────────
    # Draining has two rules: a task whose splits are assigned finishes begun splits, any other task
    # computes no more. (docs/decisions/054)
    def drain(self, now: float) -> list[a.Action]:
        """Prepare to stop: begin no tasks and no splits, deliver the computed elements.

        Tasks whose splits are assigned finish those that they have begun; others compute no more,
        since every worker yields the whole dataset. Of these, the consumers of a coordinated read
        leave the task at a round that they agree on. Clients that want positions ask other workers.
        """
        self._begin_drain(now)
        return self._outbox.take()

    def _begin_drain(self, now: float) -> None:
        if self._splits.draining:  # both an operator and SIGTERM may ask for it
            return
        self._splits.draining = True
        self._hello = msgspec.structs.replace(self._hello, draining=True)
        self._outbox.send_to_dispatcher(m.WorkerDraining())
        for task in list(self.tasks.values()):
            self._drain_task(task, now)

    @property
    def drained(self) -> bool:
        """True once clients have consumed everything that was computed, or need no more of it.

        A dispatcher that is restarted must hear of it, or it would count what was begun as lost.
        """
        if self.tasks and self._journaled and not self._outbox.in_session:
            return False
        return all(task.progress.delivered or task.left for task in self.tasks.values())

    @property
    def can_hurry(self) -> bool:
        """True if `hurry` has an effect."""
        return any(x.buffer.in_runs and not x.leaving for x in self.tasks.values())

    def hurry(self) -> list[a.Action]:
        """Let consumers leave all coordinated reads: the time to deliver everything is over."""
        for task in self.tasks.values():
            task.leaving = task.buffer.in_runs
            self._report(task)
        return self._outbox.take()

    def leave(self) -> list[a.Action]:
        """Leave the dispatcher, and report the elements that are lost with this worker."""
        undelivered = {
            task_id: task.undelivered
            for task_id, task in self.tasks.items()
            if task.ended or task.start.mode.split_sources is None
        }
        self._outbox.send_to_dispatcher(m.WorkerLeave(undelivered, self._unreported()))
        return self._outbox.take()

    def _drain_task(self, task: Task, now: float) -> None:
        if task.ended:
            return
        if task.start.mode.split_sources is None:
            task.cut, task.leaving = True, task.buffer.in_runs
            task.finish()
            self._outbox.do(a.ClosePipeline(task.start.task_id))
            if task.buffer.recomputed:
                self.clients.close_all(task, UnavailableError("the worker stops"))
                task.readers.clear()
            self._deliver(task)
            return
        self._outbox.do(a.DrainPipeline(task.start.task_id))
        self._splits.drain(task, now)

    # ── the session ───────────────────────────────────────────────────────────────────────────────
    def session_opened(self) -> list[a.Action]:
        """Send the hello on a new session."""
        readers = {task_id: list(task.readers) for task_id, task in self.tasks.items()}
        self._hello = msgspec.structs.replace(self._hello, session=self._hello.session + 1)
        hello = msgspec.structs.replace(
            self._hello,
            tasks=list(self.tasks),
            readers=readers,
            listings=list(self.listings),
            journal_position=self._journal_position,
        )
        self._outbox.do(a.SendToDispatcher(hello))
        return self._outbox.take()

    def session_lost(self, reason: str = "") -> list[a.Action]:
        """Handle a broken session. Tasks continue; clients continue to read."""
        self._outbox.in_session = False
        self._hello = msgspec.structs.replace(self._hello, reason=reason)
        return self._outbox.take()

    def session_message(self, message: m.FromDispatcher, now: float) -> list[a.Action]:
        """Handle a message of the dispatcher."""
        # A dispatcher whose journal has lost its end finds out by this. (docs/decisions/044)
        self._journal_position = message.journal_position or self._journal_position
        if isinstance(message, m.WorkerWelcome):
            self._welcome(message)
        elif isinstance(message, m.TaskStart):
            self._start(message, now)
        elif isinstance(message, m.TaskStop):
            self._stop(message.task_id, "the task was stopped: no client reads it any more")
        elif isinstance(message, m.Drain):
            self._begin_drain(now)
            self._outbox.do(a.StopDrained())
        elif isinstance(message, m.SplitGrant):
            self._splits.granted(message, now)
        elif isinstance(message, m.ShardPage):
            self._files.give(message)
        elif isinstance(message, m.ReturnSplits):
            self._splits.give_back(message.task_id, now)
        elif isinstance(message, m.ListSplits):
            self.listings.add(message.listing_id)
            self._outbox.do(a.StartListing(message))
        elif isinstance(message, m.StopListing):
            self._stop_listing(message.listing_id)
        elif isinstance(message, m.ClientReleased):
            self._client_released(message)
        elif isinstance(message, m.HeartbeatInterval):
            self._outbox.do(a.SetHeartbeatInterval(message.heartbeat_ms))
        return self._outbox.take()

    def _welcome(self, welcome: m.WorkerWelcome) -> None:
        # After a removal, and with another journal, the tasks have other ids.
        identity = (self._hello.worker_id, self._hello.journal_id)
        if identity[0] is not None and identity != (welcome.worker_id, welcome.journal_id):
            for task_id in list(self.tasks):
                self._stop(task_id, "the dispatcher had removed this worker, which starts over")
            for listing_id in list(self.listings):
                self._stop_listing(listing_id)
        self._hello = msgspec.structs.replace(
            self._hello,
            worker_id=welcome.worker_id,
            journal_id=welcome.journal_id,
            key=welcome.key,
        )
        self._outbox.in_session, self._journaled = True, welcome.journaled
        # A dispatcher that was restarted knows no totals.
        self._reported = {}
        self._outbox.do(a.SetHeartbeatInterval(welcome.heartbeat_ms))
        for task in self.tasks.values():
            self._splits.reattach(task)
            task.reported = m.TaskProgress(task.start.task_id)
            self._report(task)
        self._files.reattach()

    def _start(self, start: m.TaskStart, now: float) -> None:
        if start.task_id in self.tasks:
            return
        if self._splits.draining:  # the dispatcher started it before it knew
            self._outbox.send_to_dispatcher(m.TaskProgress(start.task_id, delivered=True))
            return
        self.tasks[start.task_id] = task = Task(start, self._round_trip, self._cache_bytes)
        self._outbox.do(a.OpenTask(start))
        self._splits.start(task, now)
        # The dispatcher notifies clients and workers in no order.
        for connection, hello in self.clients.take_parked(start.task_id):
            self._open(connection, hello, now)

    def _stop(self, task_id: int, why: str) -> None:
        task = self.tasks.pop(task_id, None)
        if task is None:
            return
        self._reported.pop(task_id, None)
        self._files.forget(task_id)
        self._outbox.do(a.ClosePipeline(task_id))
        self._turns.forget(task_id)
        self.clients.close_all(task, NotFoundError(why))

    def _client_released(self, message: m.ClientReleased) -> None:
        task = self.tasks.get(message.task_id)
        if task is None:
            return
        reader = task.release(message.client_id)
        if reader is not None:
            self.clients.release(task, reader, message.consumed)
        else:
            task.buffer.release(message.client_id, message.consumer_index)
        self._deliver(task)

    def heartbeat(self, uptime: float, loading: Loading | None = None) -> m.Heartbeat:
        """Return the heartbeat to send now, with the tasks that have computed anything since.

        Args:
            uptime: seconds since the worker was started.
            loading: as in `Heartbeat`.
        """
        if not self._outbox.in_session:
            return m.Heartbeat(uptime=uptime, loading=loading)
        tasks = self._unreported()
        self._reported |= tasks
        return m.Heartbeat(tasks, uptime, loading=loading)

    def _unreported(self) -> dict[int, m.TaskReport]:
        """Return the totals of the tasks that have computed anything since the last heartbeat."""
        return {
            task_id: task.computed
            for task_id, task in self.tasks.items()
            if task.computed != self._reported.get(task_id, NOTHING_COMPUTED)
        }

    # ── splits ────────────────────────────────────────────────────────────────────────────────────
    def need_split(
        self, task_id: int, source: int, source_epoch: int, now: float
    ) -> list[a.Action]:
        """Get the next split for a source of the task's pipeline."""
        self._splits.need(task_id, source, source_epoch, now)
        return self._outbox.take()

    def need_files(self, task_id: int, source: int, start: int) -> list[a.Action]:
        """Get files of the shard of the task, from position `start` of them on."""
        self._files.need(task_id, source, start)
        return self._outbox.take()

    def need_turn(self, task_id: int) -> list[a.Action]:
        """Get the positions that the task's pipeline computes next."""
        self._turns.need(task_id)
        return self._outbox.take()

    def splits_listed(self, answer: m.SplitsPage | m.ListingFailed) -> list[a.Action]:
        """Send the answer to a `ListSplits`."""
        if answer.listing_id in self.listings:
            self._outbox.send_to_dispatcher(answer)
        return self._outbox.take()

    def _stop_listing(self, listing_id: int) -> None:
        self.listings.discard(listing_id)
        self._outbox.do(a.CloseListing(listing_id))

    # ── production ────────────────────────────────────────────────────────────────────────────────
    def produced(self, task_id: int, chunk: Chunk) -> list[a.Action]:
        """Buffer what the task's pipeline computed; `may_produce` tells whether to continue."""
        task = self.tasks.get(task_id)
        # A pipeline that was stopped may deliver the chunk that it was computing.
        if task is not None and not task.ended:
            task.put(chunk, self._buffer_bytes)
            self._deliver(task)
        return self._outbox.take()

    def counted(self, task_id: int, counts: dict[str, int]) -> list[a.Action]:
        """Update the totals of the task's pipeline, sent to readers after the next frames."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.counts = counts
        return self._outbox.take()

    def measured(self, task_id: int, evidence: TaskEvidence) -> list[a.Action]:
        """Send the task's readers new evidence of where its time goes."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.measured(evidence)
            self._deliver(task)
        return self._outbox.take()

    def exhausted(self, task_id: int) -> list[a.Action]:
        """Handle the end of the task's pipeline."""
        task = self.tasks.get(task_id)
        if task is not None:
            # With a cache the data has no end, so that an infinite `repeat` has stopped.
            task.cut = task.cut or (self._splits.draining and task.buffer.keeps_sent)
            task.finish()
            self._deliver(task)
        return self._outbox.take()

    def may_produce(self, task_id: int) -> bool:
        """Return whether the pipeline continues; if not, `Produce` or `ClosePipeline` follows."""
        task = self.tasks.get(task_id)
        if task is None:
            return False
        task.full = not task.has_room(self._buffer_bytes)
        return not task.full

    # ── clients ───────────────────────────────────────────────────────────────────────────────────
    def client_message(self, connection: int, message: f.Message, now: float) -> list[a.Action]:
        """Handle a message on a data connection."""
        if isinstance(message, f.Hello):
            self._open(connection, message, now)
        elif (found := self.clients.get(connection)) is not None:
            task, reader = found
            if isinstance(message, f.Credit | f.Want):
                self._request(task, reader, message)
            elif isinstance(message, f.GiveBack):
                del task.readers[reader.client_id]
                task.give_back(reader, (message.frame, message.consumed))
                self.clients.close(connection, None)
            elif isinstance(message, f.Bye):
                reader.disconnect()
                self.clients.close(connection, None)
            self._deliver(task)
        return self._outbox.take()

    def _request(self, task: Task, reader: Reader, message: f.Credit | f.Want) -> None:
        """Apply a message by which a client gets elements; if not valid, close its connection."""
        try:
            if isinstance(message, f.Credit):
                task.credited(reader, message)
            else:
                reader.want(message)
        except StokerError as error:
            self.clients.close(reader.connection, error)
            reader.disconnect()

    def client_lost(self, connection: int) -> list[a.Action]:
        """Handle a broken data connection. Its frames are kept: the client may reconnect."""
        found = self.clients.get(connection)
        self.clients.lost(connection)
        if found is not None:
            self._deliver(found[0])  # what the client alone had wanted leaves room
        return self._outbox.take()

    def tick(self, now: float) -> list[a.Action]:
        """Close connections whose tasks have not started in time, and announce splits."""
        self._splits.tick(now)
        self.clients.tick(now)
        return self._outbox.take()

    def _open(self, connection: int, hello: f.Hello, now: float) -> None:
        task = self.clients.open(connection, hello, now)
        if task is not None:
            self._deliver(task)

    def _deliver(self, task: Task) -> None:
        """Send all possible frames, and resume the pipeline if that made room."""
        for reader, message in task.deliver():
            assert reader.connection is not None
            self._outbox.do(a.SendToClient(reader.connection, message))
        if task.full and self.may_produce(task.start.task_id):
            self._outbox.do(a.Produce(task.start.task_id))
        self._turns.give(task)
        self._report(task)

    def _report(self, task: Task) -> None:
        """Send the dispatcher the state of a task if it has changed."""
        progress = task.progress
        if progress != task.reported:
            task.reported = progress
            self._outbox.send_to_dispatcher(progress)
