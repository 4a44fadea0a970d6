"""The worker without I/O: messages of dispatcher, clients and pipelines in, actions out.

The shell (`shell.py`) executes the actions and reports events. A *connection* is the shell's number
of one data connection. All methods return the actions to execute, in order.
"""

import msgspec

from stoker.errors import (
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    StokerError,
    UnavailableError,
    to_record,
)
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.keys import are_equal, reader_key
from stoker.service.task_evidence import TaskEvidence
from stoker.service.worker.actions import (
    Action,
    CloseConnection,
    CloseTask,
    DrainPipeline,
    GiveFiles,
    GiveSplit,
    ListSplits,
    OpenTask,
    Produce,
    SetHeartbeat,
    StopDrained,
    StopListing,
    StopPipeline,
    ToClient,
    ToDispatcher,
)
from stoker.service.worker.buffer_policies import DEFAULT_CACHE_BYTES
from stoker.service.worker.reader_state import ReaderState
from stoker.service.worker.round_trip import RoundTrip
from stoker.service.worker.split_queue import SplitQueue
from stoker.service.worker.task import FRAME_BYTES, FRAME_ELEMENTS, NOTHING_COMPUTED, Task
from stoker.wire import frames as f

__all__ = [
    "FRAME_BYTES",
    "FRAME_ELEMENTS",
    "Action",
    "CloseConnection",
    "CloseTask",
    "DrainPipeline",
    "GiveFiles",
    "GiveSplit",
    "ListSplits",
    "OpenTask",
    "Produce",
    "SetHeartbeat",
    "StopDrained",
    "StopListing",
    "StopPipeline",
    "Task",
    "ToClient",
    "ToDispatcher",
    "Worker",
]

PARKED_SECONDS = 10.0
"""Time for which a connection waits for its task: a client may be notified before the worker."""


LONGEST_TICK = 1.0
"""Longest interval between ticks that is expected again; a frozen process has longer ones."""


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
        connections: connection → its task and client.
        parked: connection that waits for its task → its hello and the time until which it waits.
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
        self.connections: dict[int, tuple[int, int]] = {}
        self.parked: dict[int, tuple[f.Hello, float]] = {}
        self._hello = hello
        self._buffer_bytes = buffer_bytes
        self._peer_timeout_ms = peer_timeout_ms
        self._cache_bytes = cache_bytes
        self._in_session = False
        self._journaled = False
        self._draining = False
        self._round_trip = RoundTrip()
        self._reported: dict[int, m.TaskReport] = {}
        self._ticked_at: float | None = None
        self._tick_seconds = 0.0
        self._actions: list[Action] = []

    @property
    def worker_id(self) -> int:
        """The id that the dispatcher assigned; 0 before that."""
        return self._hello.worker_id or 0

    # ── the end ───────────────────────────────────────────────────────────────────────────────────
    def drain(self, now: float) -> list[Action]:
        """Prepare to stop: begin no tasks and no splits, deliver the computed elements.

        Tasks whose splits are assigned finish those that they have begun; others compute no more,
        since every worker yields the whole dataset.
        """
        self._begin_drain(now)
        return self._take_actions()

    def _begin_drain(self, now: float) -> None:
        if self._draining:  # both an operator and SIGTERM may ask for it
            return
        self._draining = True
        self._hello = msgspec.structs.replace(self._hello, draining=True)
        self._send_to_dispatcher(m.WorkerDraining())
        for task in list(self.tasks.values()):
            self._drain_task(task, now)

    @property
    def drained(self) -> bool:
        """True once clients have consumed everything that was computed.

        A dispatcher that is restarted must hear of it, or it would count what was begun as lost.
        """
        if self.tasks and self._journaled and not self._in_session:
            return False
        return all(task.progress.delivered for task in self.tasks.values())

    def leave(self) -> list[Action]:
        """Leave the dispatcher, and report the elements that are lost with this worker."""
        undelivered = {
            task_id: task.undelivered
            for task_id, task in self.tasks.items()
            if task.ended or task.start.split_sources is None
        }
        self._send_to_dispatcher(m.WorkerLeave(undelivered, self._unreported()))
        return self._take_actions()

    def _drain_task(self, task: Task, now: float) -> None:
        if task.ended:
            return
        if task.start.split_sources is None:
            task.cut = True
            task.finish()
            self._do(StopPipeline(task.start.task_id))
            self._deliver(task)
            return
        self._do(DrainPipeline(task.start.task_id))
        for queue in list(task.queues.values()):
            queue.drain()
            task.cut = task.cut or queue.cut
            self._give_split(task, queue, now)

    # ── the session ───────────────────────────────────────────────────────────────────────────────
    def session_opened(self) -> list[Action]:
        """Send the hello on a new session."""
        readers = {task_id: list(task.readers) for task_id, task in self.tasks.items()}
        self._hello = msgspec.structs.replace(self._hello, session=self._hello.session + 1)
        hello = msgspec.structs.replace(
            self._hello, tasks=list(self.tasks), readers=readers, listings=list(self.listings)
        )
        self._do(ToDispatcher(hello))
        return self._take_actions()

    def session_lost(self, reason: str = "") -> list[Action]:
        """Handle a broken session. Tasks continue; clients continue to read."""
        self._in_session = False
        self._hello = msgspec.structs.replace(self._hello, reason=reason)
        return self._take_actions()

    def session_message(self, message: m.FromDispatcher, now: float) -> list[Action]:
        """Handle a message of the dispatcher."""
        if isinstance(message, m.WorkerWelcome):
            self._welcome(message)
        elif isinstance(message, m.TaskStart):
            self._start(message, now)
        elif isinstance(message, m.TaskStop):
            self._stop(message.task_id, "the task was stopped: no client reads it any more")
        elif isinstance(message, m.Drain):
            self._begin_drain(now)
            self._do(StopDrained())
        elif isinstance(message, m.SplitGrant):
            self._granted(message, now)
        elif isinstance(message, m.ShardPage):
            self._give_files(message)
        elif isinstance(message, m.ReturnSplits):
            self._return_splits(message.task_id, now)
        elif isinstance(message, m.ListSplits):
            self.listings.add(message.listing_id)
            self._do(ListSplits(message))
        elif isinstance(message, m.StopListing):
            self._stop_listing(message.listing_id)
        elif isinstance(message, m.ClientReleased):
            self._client_released(message)
        elif isinstance(message, m.HeartbeatInterval):
            self._do(SetHeartbeat(message.heartbeat_ms))
        return self._take_actions()

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
        self._in_session, self._journaled = True, welcome.journaled
        self._reported = {}
        self._do(SetHeartbeat(welcome.heartbeat_ms))
        for task in self.tasks.values():
            for done in task.read:
                self._send_to_dispatcher(done)
            for queue in task.queues.values():
                self._send_to_dispatcher(queue.reattach())
            for request in task.files:
                self._send_to_dispatcher(request)
            task.reported = m.TaskProgress(task.start.task_id)
            self._report(task)

    def _start(self, start: m.TaskStart, now: float) -> None:
        if start.task_id in self.tasks:
            return
        if self._draining:  # the dispatcher started it before it knew
            self._send_to_dispatcher(m.TaskProgress(start.task_id, delivered=True))
            return
        self.tasks[start.task_id] = task = Task(start, self._round_trip, self._cache_bytes)
        self._do(OpenTask(start))
        if start.split_sources is not None and len(start.split_sources) == 1:
            # The only source is read for certain. Its first split arrives while the pipeline is
            # opened, which saves the first element two round trips.
            self._send_to_dispatcher(task.queue(start.split_sources[0].number, 0).ask(now))
        for connection, (hello, _) in list(self.parked.items()):
            if hello.task_id == start.task_id:
                del self.parked[connection]
                self._open(connection, hello, now)

    def _stop(self, task_id: int, why: str) -> None:
        task = self.tasks.pop(task_id, None)
        if task is None:
            return
        self._reported.pop(task_id, None)
        self._do(CloseTask(task_id))
        for reader in task.readers.values():
            self._close_connection(reader.connection, NotFoundError(why))

    def _client_released(self, message: m.ClientReleased) -> None:
        task = self.tasks.get(message.task_id)
        if task is None:
            return
        reader = task.release(message.client_id)
        if reader is not None:
            self._release(task, reader, message.consumed)
        else:
            task.buffer.release(message.client_id, message.consumer_index)
        self._deliver(task)

    def _release(
        self, task: Task, reader: ReaderState, consumed: tuple[int, int] | None = None
    ) -> None:
        task.give_back(reader, consumed)
        self._close_connection(reader.connection, _unknown_client(reader.client_id))

    def heartbeat(self, uptime: float) -> m.Heartbeat:
        """Return the heartbeat to send now, with the tasks that have computed anything since.

        Args:
            uptime: seconds since the worker was started.
        """
        if not self._in_session:
            return m.Heartbeat(uptime=uptime)
        tasks = self._unreported()
        self._reported |= tasks
        return m.Heartbeat(tasks, uptime)

    def _unreported(self) -> dict[int, m.TaskReport]:
        """Return the totals of the tasks that have computed anything since the last heartbeat."""
        return {
            task_id: task.computed
            for task_id, task in self.tasks.items()
            if task.computed != self._reported.get(task_id, NOTHING_COMPUTED)
        }

    # ── splits ────────────────────────────────────────────────────────────────────────────────────
    def need_split(self, task_id: int, source: int, source_epoch: int, now: float) -> list[Action]:
        """Get the next split for a source of the task's pipeline."""
        task = self.tasks.get(task_id)
        if task is None:
            self._do(GiveSplit(task_id, source, source_epoch, []))
        else:
            queue = task.queue(source, source_epoch)
            if self._draining and not queue.ended:
                queue.drain()
                task.cut = True
            self._send_to_dispatcher(queue.need(now))
            self._give_split(task, queue, now)
        return self._take_actions()

    def need_files(self, task_id: int, source: int, start: int) -> list[Action]:
        """Get files of the shard of the task, from position `start` of them on."""
        task = self.tasks.get(task_id)
        if task is not None:
            request = m.ShardRequest(task_id, source, start)
            task.files[request] = None
            self._send_to_dispatcher(request)
        return self._take_actions()

    def _give_files(self, page: m.ShardPage) -> None:
        task = self.tasks.get(page.task_id)
        request = m.ShardRequest(page.task_id, page.source, page.start)
        if task is not None and request in task.files:  # not if it was repeated on a new session
            del task.files[request]
            self._do(GiveFiles(page))

    def _granted(self, grant: m.SplitGrant, now: float) -> None:
        task = self.tasks.get(grant.task_id)
        queue = task.queues.get((grant.source, grant.source_epoch)) if task is not None else None
        if task is not None and queue is not None:
            self._send_to_dispatcher(queue.granted(grant, now))
            self._give_split(task, queue, now)

    def _return_splits(self, task_id: int, now: float) -> None:
        task = self.tasks.get(task_id)
        for queue in task.queues.values() if task is not None else ():
            self._send_to_dispatcher(queue.give_back(now))

    def _give_split(self, task: Task, queue: SplitQueue, now: float) -> None:
        split = queue.take(now)
        if split is None:
            return
        self._do(GiveSplit(queue.task_id, queue.source, queue.source_epoch, split))
        if split:
            self._send_to_dispatcher(queue.look_ahead(now, self._tick_seconds))
        else:
            del task.queues[queue.source, queue.source_epoch]
            done = m.SplitRequest(queue.task_id, queue.source, queue.source_epoch, done=True)
            task.read.append(done)
            self._send_to_dispatcher(done)

    def splits_listed(self, answer: m.SplitsPage | m.ListingFailed) -> list[Action]:
        """Send the answer to a `ListSplits`."""
        if answer.listing_id in self.listings:
            self._send_to_dispatcher(answer)
        return self._take_actions()

    def _stop_listing(self, listing_id: int) -> None:
        self.listings.discard(listing_id)
        self._do(StopListing(listing_id))

    # ── production ────────────────────────────────────────────────────────────────────────────────
    def produced(self, task_id: int, chunk: Chunk) -> list[Action]:
        """Buffer what the task's pipeline computed; `may_produce` tells whether to continue."""
        task = self.tasks.get(task_id)
        if task is not None and not task.ended:
            task.put(chunk, self._buffer_bytes)
            self._deliver(task)
        return self._take_actions()

    def counted(self, task_id: int, counts: dict[str, int]) -> list[Action]:
        """Update the totals of the task's pipeline, sent to readers after the next frames."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.counts = counts
        return self._take_actions()

    def measured(self, task_id: int, evidence: TaskEvidence) -> list[Action]:
        """Send the task's readers new evidence of where its time goes."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.measured(evidence)
            self._deliver(task)
        return self._take_actions()

    def exhausted(self, task_id: int) -> list[Action]:
        """Handle the end of the task's pipeline."""
        task = self.tasks.get(task_id)
        if task is not None:
            # With a cache the data has no end, so that an infinite `repeat` has stopped.
            task.cut = task.cut or (self._draining and task.buffer.keeps_sent)
            task.finish()
            self._deliver(task)
        return self._take_actions()

    def may_produce(self, task_id: int) -> bool:
        """Return whether the pipeline continues; if not, `Produce` or `CloseTask` follows."""
        task = self.tasks.get(task_id)
        if task is None:
            return False
        task.full = not task.has_room(self._buffer_bytes)
        return not task.full

    # ── clients ───────────────────────────────────────────────────────────────────────────────────
    def client_message(self, connection: int, message: f.Message, now: float) -> list[Action]:
        """Handle a message on a data connection."""
        if isinstance(message, f.Hello):
            self._open(connection, message, now)
        elif (found := self._reader_of(connection)) is not None:
            task, reader = found
            if isinstance(message, f.Credit):
                task.credited(reader, message)
            elif isinstance(message, f.GiveBack):
                del task.readers[reader.client_id]
                task.give_back(reader, (message.frame, message.consumed))
                self._close_connection(connection, None)
            elif isinstance(message, f.Bye):
                reader.connection = None
                self._close_connection(connection, None)
            self._deliver(task)
        return self._take_actions()

    def client_lost(self, connection: int) -> list[Action]:
        """Handle a broken data connection. Its frames are kept: the client may reconnect."""
        self.parked.pop(connection, None)
        found = self._reader_of(connection)
        if found is not None:
            found[1].connection = None
        self.connections.pop(connection, None)
        return self._take_actions()

    def tick(self, now: float) -> list[Action]:
        """Close connections whose tasks have not started in time, and announce splits."""
        if self._ticked_at is not None:
            self._tick_seconds = min(now - self._ticked_at, LONGEST_TICK)
        self._ticked_at = now
        for task in self.tasks.values():
            for queue in task.queues.values():
                self._send_to_dispatcher(queue.look_ahead(now, self._tick_seconds))
        for connection, (hello, until) in list(self.parked.items()):
            if now > until:
                del self.parked[connection]
                error = NotFoundError(f"task {hello.task_id} does not run on this worker")
                self._close_connection(connection, error)
        return self._take_actions()

    def _open(self, connection: int, hello: f.Hello, now: float) -> None:
        try:
            protocol = f.negotiate(hello.protocol_min, hello.protocol_max)
            task = self.tasks.get(hello.task_id)
            # The dispatcher notifies clients and workers at the same time.
            if task is None:
                self.parked[connection] = (hello, now + PARKED_SECONDS)
                return
            if not are_equal(hello.key, reader_key(task.start.key, hello.client_id)):
                raise PermissionDeniedError(
                    f"this is not the key of client {hello.client_id} for task {hello.task_id}"
                )
            if hello.client_id in task.released:
                raise _unknown_client(hello.client_id)
            known = task.readers.get(hello.client_id)
            reader = known or self._new_reader(task, hello)
            # The `Welcome` that named the first frame may be lost, or the `Credit` that skips.
            if known is not None:
                task.skip(known, hello.next_frame)
            next_frame = max(hello.next_frame, reader.first_number)
            _check_resumable(reader, hello, next_frame)
        except StokerError as error:
            self._close_connection(connection, error)
            return
        self._close_connection(reader.connection, UnavailableError("the client connected again"))
        task.readers[hello.client_id] = reader
        reader.metered, reader.reports = hello.metered, hello.reports
        self.connections[connection] = (hello.task_id, hello.client_id)
        welcome = f.Welcome(
            protocol, self._hello.address, self._buffer_bytes, self._peer_timeout_ms, next_frame
        )
        self._do(ToClient(connection, welcome))
        reader.connect(connection, hello.attempt, next_frame)
        self._deliver(task)

    def _new_reader(self, task: Task, hello: f.Hello) -> ReaderState:
        """Return the state of a new client, after the release of one that it replaces.

        Raises:
            StokerError: if it cannot read the task.
        """
        index = hello.consumer_index
        for other in list(task.readers.values()):
            if index is not None and other.consumer_index == index:
                if other.client_id > hello.client_id:  # the older of the two was replaced
                    raise _unknown_client(hello.client_id)
                task.release(other.client_id)
                self._release(task, other)
        reader = ReaderState(hello.client_id, self._buffer_bytes, index)
        if index is None:
            _check_resumable(reader, hello, hello.next_frame)
        first = task.buffer.join(hello.client_id, hello.trainer, index, hello.next_frame)
        reader.begin_at(first)
        return reader

    def _reader_of(self, connection: int) -> tuple[Task, ReaderState] | None:
        task_id, client_id = self.connections.get(connection, (-1, -1))
        task = self.tasks.get(task_id)
        reader = task.readers.get(client_id) if task is not None else None
        if task is None or reader is None or reader.connection != connection:
            return None
        return task, reader

    def _close_connection(self, connection: int | None, error: StokerError | None) -> None:
        if connection is None:
            return
        self.connections.pop(connection, None)
        self._do(ToClient(connection, f.Bye(None if error is None else to_record(error))))
        self._do(CloseConnection(connection))

    def _deliver(self, task: Task) -> None:
        """Send all possible frames, and resume the pipeline if that made room."""
        for reader, message in task.deliver():
            assert reader.connection is not None
            self._do(ToClient(reader.connection, message))
        if task.full and self.may_produce(task.start.task_id):
            self._do(Produce(task.start.task_id))
        self._report(task)

    def _report(self, task: Task) -> None:
        """Send the dispatcher the state of a task if it has changed."""
        progress = task.progress
        if progress != task.reported:
            task.reported = progress
            self._send_to_dispatcher(progress)

    # ── mechanics ─────────────────────────────────────────────────────────────────────────────────
    def _send_to_dispatcher(self, message: m.FromWorker | None) -> None:
        if message is not None and self._in_session:
            self._do(ToDispatcher(message))

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _take_actions(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions


def _check_resumable(reader: ReaderState, hello: f.Hello, next_frame: int) -> None:
    """Check that a client that connects can continue from `next_frame` on.

    Raises:
        UnavailableError: if a newer connection of the client arrived before.
        FailedPreconditionError: if its next frame is not kept.
    """
    if hello.attempt <= reader.attempt:
        raise UnavailableError("a newer connection of the client arrived before")
    if not reader.can_resume(next_frame):
        raise FailedPreconditionError(
            f"frame {next_frame} of task {hello.task_id} is not kept for client {hello.client_id}"
        )


def _unknown_client(client_id: int) -> NotFoundError:
    return NotFoundError(f"Unknown iteration client id {client_id}. It was released")
