"""The worker's shell: sockets, threads and pipelines around `logic.Worker`."""

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.dataset.streams.calls.call_recorder import CallRecorder
from stoker.errors import (
    ErrorRecord,
    StokerError,
    UnavailableError,
    from_record,
)
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.config import WorkerConfig, parse_service
from stoker.service.control import rpc_session
from stoker.service.control.rpc import WARN_SECONDS
from stoker.service.keys import KEY_BYTES, WorkerIdentity
from stoker.service.process.clock import CLOCK, Clock
from stoker.service.process.host import versions
from stoker.service.worker import actions as a
from stoker.service.worker import logic
from stoker.service.worker.buffers.chunk_queue import FRAME_BYTES
from stoker.service.worker.pipelines.dataset_loader import DatasetLoader
from stoker.service.worker.pipelines.failure_log import FailureLog
from stoker.service.worker.pipelines.listing import ListingThread
from stoker.service.worker.pipelines.pipeline import Arguments, task_fields
from stoker.service.worker.pipelines.task_pipelines import TaskPipelines
from stoker.service.worker.processes.allocator import TRIM_SECONDS, trim_allocator
from stoker.service.worker.readers.data_connections import DataConnections
from stoker.service.worker.readers.listeners import WorkerListeners, shared_segments
from stoker.service.worker.readers.probing import probe_reply
from stoker.version import VERSION
from stoker.wire import frames as f

logger = logging.getLogger("stoker.worker")

DRAIN_SECONDS = 0.02
"""Interval at which a worker that drains checks whether it is done."""

HURRY_SECONDS = 2.0
"""Time after the quiet period for which the consumers of a coordinated read may agree on their last
round of a worker, and receive what they lack until then."""

LONGEST_TICK_SECONDS = 0.5
"""Interval of the timers of a worker with a lease of 10 s and more; with 0.05 an idle worker used
0.5 % of a core."""

ADDRESS_TIMEOUTS = 1.5
"""Peer timeouts for which a new worker asks again while another process holds its address: that may
have died with its machine, which the dispatcher notices within one."""

FIRST_WARNING_SECONDS = 3.0
"""A new worker that no dispatcher has answered warns after this time, then each `WARN_SECONDS`."""

REFUSED_SECONDS = 60.0
"""A worker that the dispatcher refuses for this long stops."""


class Shell:
    """Execute the logic's actions. The logic is called under one lock, from any thread.

    Args:
        config: the worker's configuration.
        ended: called at most once, from any thread, when the worker must stop: with the error, or
            ``None`` if the dispatcher was unreachable for too long.
        on_registered: called with each identity that a dispatcher assigns.
        refused_seconds: the worker stops after this time if the dispatcher only refuses it.
        calls: records the calls of user functions in flight.
        asked_to_drain: called on the control loop when an operator asks the worker to drain; the
            owner then calls `drain` and `stop`.
        clock: times heartbeats, waits and timeouts.

    Attributes:
        refused: the error with which the dispatcher refuses the worker; ``None`` if it does not.
    """

    def __init__(
        self,
        config: WorkerConfig,
        ended: Callable[[StokerError | None], None],
        on_registered: Callable[[WorkerIdentity], None],
        refused_seconds: float = REFUSED_SECONDS,
        calls: CallRecorder | None = None,
        asked_to_drain: Callable[[], None] = lambda: None,
        clock: Clock = CLOCK,
    ) -> None:
        self._clock = clock
        self._config = config
        self._asked_to_drain = asked_to_drain
        self._on_registered = on_registered
        self._ended = ended
        self._refused_seconds = refused_seconds
        self.calls = calls
        self._dispatcher_address = parse_service(config.dispatcher_address)[1]
        self._lock = threading.RLock()
        self._registered = threading.Event()
        self.refused: ErrorRecord | None = None
        self._refused_since: float | None = None
        self._refused_last = False
        self._crashed = False
        self._failure: StokerError | None = None
        self.segments = shared_segments(config)
        self.chunk_bytes = max(1, min(FRAME_BYTES, config.buffer_bytes // 4))
        self._loader = DatasetLoader(self._dispatcher_address, config.peer_timeout_ms / 1000)
        self.load = self._loader.load
        self._pipelines = TaskPipelines(self, self._loader.cache, self._lock)
        self._listings: dict[int, ListingThread] = {}
        self._interval = config.heartbeat_interval
        self._started_at = self._clock.now()
        self._warn_at = self._started_at + FIRST_WARNING_SECONDS
        self._lost_at: float | None = self._started_at
        self._next_heartbeat = 0.0
        self._has_ended = False
        self._trim_at: float | None = None
        self._failures = FailureLog(logger, clock.now)
        self._at_stop = contextlib.ExitStack()
        if self.segments is not None:
            self._at_stop.callback(self.segments.close)

    # ── life ──────────────────────────────────────────────────────────────────────────────────────
    def start(self) -> None:
        """Bind, register, and return when the dispatcher has answered."""
        # The listeners are open before there is a logic: clients that connect wait for the lock.
        with self._lock:
            self._connections = DataConnections(
                self._client_message,
                lambda connection: self.call(logic.Worker.client_lost, connection),
                self._probed,
                self._clock,
            )
            self._at_stop.callback(self._close_pipelines)
            self._listeners = WorkerListeners(
                self._config, self._dispatcher_address, self._connections, self.segments
            )
            self._at_stop.callback(self._listeners.close)
            self._at_stop.callback(self._connections.close)
            self.address = self._listeners.address
            hello = m.WorkerHello(
                m.PROTOCOL_MIN,
                m.PROTOCOL_MAX,
                self.address,
                data_transfer_addresses=self._listeners.data_transfer_addresses,
                versions=versions(),
                tags=self._config.worker_tags,
                # Differs for another process at this address; a repeated hello has the same.
                instance=secrets.token_hex(KEY_BYTES),
                version=VERSION,
            )
            self.logic = logic.Worker(
                hello,
                self._config.buffer_bytes,
                self._config.peer_timeout_ms,
                self._config.cross_trainer_cache_size_bytes,
            )
            # The callbacks may run immediately, and need the lock.
            self._session = rpc_session.Session(
                self._dispatcher_address,
                lambda: self.call(logic.Worker.session_opened),
                self._session_message,
                lost=self._session_lost,
                tick=self._tick,
                failed=self._fail,
                peer_timeout=self._config.peer_timeout_ms / 1000,
                clock=self._clock,
            )
            self._at_stop.callback(self._leave)
        self._await_registration()

    def drain(self, seconds: float, stop_now: threading.Event) -> None:
        """Begin nothing new, and wait until clients have read the computed elements.

        Args:
            seconds: the longest wait.
            stop_now: ends the wait.
        """
        self.call(logic.Worker.drain, self._clock.now())
        if not self._wait_drained(seconds, stop_now) and self.logic.can_hurry:
            self.call(logic.Worker.hurry)
            self._wait_drained(HURRY_SECONDS, stop_now)

    def _wait_drained(self, seconds: float, stop_now: threading.Event) -> bool:
        """Return whether the worker is drained within `seconds`, or before `stop_now` is set."""
        deadline = self._clock.now() + seconds
        while self._clock.now() < deadline and not stop_now.wait(DRAIN_SECONDS):
            with self._lock:
                if self.logic.drained:
                    return True
        return False

    def stop(self) -> None:
        """End everything without waiting for user functions that run."""
        self._loader.stopping = True
        self._at_stop.close()

    def _leave(self) -> None:
        self.call(logic.Worker.leave)
        self._session.close()

    def _close_pipelines(self) -> None:
        pipelines = self._pipelines.remove_all()
        with self._lock:
            for listing in self._listings.values():
                listing.close()
            self._listings.clear()
        for pipeline in pipelines:
            pipeline.close()
        # After the listeners: their handshakes need it to end.
        self._connections.poller.close()
        for pipeline in pipelines:
            pipeline.join(1.0)

    def _await_registration(self) -> None:
        """Wait for the dispatcher's welcome, or until `_tick` ends the worker without one."""
        self._registered.wait()
        if self._failure is not None:
            raise self._failure
        if self.refused is not None:
            raise from_record(self.refused)
        if self._has_ended:
            where = self._dispatcher_address + self._why()
            raise UnavailableError(f"no dispatcher answers at {where}")

    def _why(self) -> str:
        """Return why the dispatcher cannot be reached, in parentheses."""
        return f" ({self._reason})" if self._reason else ""

    @property
    def _reason(self) -> str:
        with self._lock:  # the session may break before `start` has its object
            return self._session.failure

    def _tick(self) -> None:
        if self._crashed:
            return  # so that its lease ends, should it be unable to stop
        now = self._clock.now()
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._interval
            with self._lock:
                uptime = now - self._started_at
                self._session.send(self.logic.heartbeat(uptime, self._pipelines.loading))
        self.call(logic.Worker.tick, now)
        for task_id, evidence in self._pipelines.evidence(now):
            self.call(logic.Worker.measured, task_id, evidence)
        self._failures.report_if_due(now)
        self._connections.tick(now)
        if self._trim_at is not None and now >= self._trim_at:
            self._trim_at = None
            # On its own thread: it may take long, but not the GIL.
            with contextlib.suppress(RuntimeError):  # no more threads
                threading.Thread(target=self._trim, name="stoker-trim", daemon=True).start()
        if not self._registered.is_set() and now >= self._warn_at:
            self._warn_at = now + WARN_SECONDS
            logger.warning(
                "waiting for the dispatcher at %s%s", self._dispatcher_address, self._why()
            )
        limit = self._config.dispatcher_timeout
        if self._lost_at is None or now - self._lost_at <= limit or self._has_ended:
            return
        if self._registered.is_set():
            where = self._dispatcher_address + self._why()
            logger.error("no dispatcher at %s for %g s: stopping", where, limit)
            self._end(None)
        else:
            self._has_ended = True
            self._registered.set()  # `start` raises

    def _fail(self, error: Exception) -> None:
        """Stop the worker after an internal error; from any thread."""
        if not isinstance(error, StokerError):
            text = f"internal error of the worker: {type(error).__name__}: {error}"
            cause, error = error, StokerError(text)
            error.__cause__ = cause
        self._end(error)

    def _end(self, error: StokerError | None) -> None:
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
            self._failure = error
        self._registered.set()
        self._ended(error)

    def _trim(self) -> None:
        """Return the memory of tasks that were closed to the system."""
        if self.segments is not None:
            self.segments.release_unused()
        trim_allocator()

    # ── the session (called on the control loop) ──────────────────────────────────────────────────
    def _session_message(self, message: m.FromDispatcher) -> None:
        if isinstance(message, m.Refused):
            self._be_refused(message.error)
            return
        self.call(logic.Worker.session_message, message, self._clock.now())
        if isinstance(message, m.WorkerWelcome):
            self._lost_at = self._refused_since = self.refused = None
            self._on_registered(WorkerIdentity(message.worker_id, message.key))
            self._registered.set()

    def _be_refused(self, error: ErrorRecord) -> None:
        """Handle a refusal; the session asks again after a pause that grows.

        At the start of the worker the first one is final, unless its address may become free.
        """
        now = self._clock.now()
        self.refused, self._refused_last = error, True
        if self._refused_since is None:
            self._refused_since = now
        logger.error("the dispatcher refuses this worker: %s", error.message)
        if not self._registered.is_set():
            waits = ADDRESS_TIMEOUTS * self._config.peer_timeout_ms / 1000
            if error.code != "AlreadyExistsError" or now - self._refused_since >= waits:
                self._registered.set()  # `start` raises it
        elif now - self._refused_since >= self._refused_seconds:
            logger.error("refused for %g s: stopping", self._refused_seconds)
            self._end(from_record(error))

    def _session_lost(self) -> None:
        if not self._refused_last:  # the dispatcher was away: the next refusal is the first
            self._refused_since = None
        self._refused_last = False
        if self._lost_at is None:
            self._lost_at = self._clock.now()
            if not self._loader.stopping:
                logger.warning(
                    "the session with the dispatcher at %s broke%s",
                    self._dispatcher_address,
                    self._why(),
                )
        self.call(logic.Worker.session_lost, self._reason)

    # ── data connections (called on the threads of their poller) ──────────────────────────────────
    def _client_message(self, connection: int, message: f.Message) -> None:
        # An exception ends the connection, not the worker.
        self._call(logic.Worker.client_message, connection, message, self._clock.now())

    def _probed(self) -> f.WorkerProbeReply:
        with self._lock:  # a client may connect before `start` has made the logic
            worker_id = self.logic.worker_id
        return probe_reply(self.address, worker_id, self._dispatcher_address, time.time())

    # ── pipelines (called on their threads) ───────────────────────────────────────────────────────
    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an array for a batch: in shared memory, if a client can map it."""
        if self.segments is None or not self.segments.clients:
            return np.empty(shape, dtype)
        return self.segments.allocate(shape, dtype)

    def produced(self, task_id: int, chunk: Chunk) -> bool:
        """Deliver a chunk of the task; return whether there is room for more."""
        self.call(logic.Worker.produced, task_id, chunk)
        # Credit that arrives before the question counts: the pipeline waits only if there is still
        # no room, and then the next credit resumes it.
        with self._lock:
            return not self._crashed and self.logic.may_produce(task_id)

    def failed(self, start: m.TaskStart, error: ErrorRecord) -> None:
        """Log an error of the task."""
        self._failures.add(error, {"worker": self.address, **task_fields(start)})

    def need_split(self, task_id: int, source: int, source_epoch: int) -> None:
        """Ask for a split for the task's pipeline."""
        self.call(logic.Worker.need_split, task_id, source, source_epoch, self._clock.now())

    def need_files(self, task_id: int, source: int, start: int) -> None:
        """Ask for files of the shard of the task."""
        self.call(logic.Worker.need_files, task_id, source, start)

    def need_turn(self, task_id: int) -> None:
        """Ask for the positions that the task's pipeline computes next."""
        self.call(logic.Worker.need_turn, task_id)

    # ── actions ───────────────────────────────────────────────────────────────────────────────────
    def call(
        self, method: Callable[[logic.Worker, *Arguments], list[a.Action]], *arguments: *Arguments
    ) -> None:
        """Call the logic and execute its actions; an unexpected exception stops the worker."""
        try:
            self._call(method, *arguments)
        except Exception as error:
            logger.critical("the worker stops: an internal error", exc_info=True)
            self._crashed = True
            self._fail(error)

    def _call(self, method: Callable[..., list[a.Action]], *arguments: Any) -> None:
        if self._crashed:
            return  # the logic may be half changed
        with self._lock:
            self._execute(method(self.logic, *arguments))
            to_flush = self._connections.take_to_flush()
        for channel in to_flush:
            channel.flush()

    def _execute(self, actions: list[a.Action]) -> None:
        """Execute actions, under the lock; nothing here blocks."""
        for action in actions:
            if isinstance(action, a.SendToClient):
                self._connections.put(action.connection, action.message)
            elif isinstance(action, a.SendToDispatcher):
                self._session.send(action.message)
            elif isinstance(action, a.CloseConnection):
                self._connections.put(action.connection, None)
            elif isinstance(action, a.SetHeartbeatInterval):
                self._interval = action.milliseconds / 1000
                # One that was sent before the session was open is lost.
                self._next_heartbeat = min(self._next_heartbeat, self._clock.now())
                half = min(self._interval / 2, LONGEST_TICK_SECONDS)
                self._session.tick_seconds = max(half, rpc_session.TICK_SECONDS)
            elif isinstance(action, a.StopDrained):
                self._asked_to_drain()
            elif isinstance(action, a.StartListing):
                self._list(action.request)
            elif isinstance(action, a.CloseListing):
                if (listing := self._listings.pop(action.listing_id, None)) is not None:
                    listing.close()
            else:
                self._run_on_pipeline(action)

    def _run_on_pipeline(self, action: a.PipelineAction) -> None:
        if self._pipelines.execute(action) and self._trim_at is None:
            self._trim_at = self._clock.now() + TRIM_SECONDS

    def _list(self, request: m.ListSplits) -> None:
        listing = self._listings.get(request.listing_id)
        if listing is None:
            listing = ListingThread(
                self.load,
                self.address,
                lambda answer: self.call(logic.Worker.splits_listed, answer),
            )
            self._listings[request.listing_id] = listing
        listing.ask(request)
