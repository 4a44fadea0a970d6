"""The client's shell: a stream around `logic.Client` and its connections to workers."""

import logging
import math
import os
import random
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Any, NoReturn

import msgspec

from stoker.dataset.streams.measure.bottleneck import Bottleneck
from stoker.dataset.streams.measure.recording import Meters
from stoker.dataset.streams.measure.statistics import Statistics
from stoker.dataset.streams.measure.stopwatch import Stopwatch
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.elements.codec.elements import TypeResolver
from stoker.elements.spec import Spec, compatible, spec_of
from stoker.errors import (
    DataLossError,
    ErrorRecord,
    FailedPreconditionError,
    InvalidArgumentError,
    StokerError,
    from_record,
    to_record,
)
from stoker.service import messages as m
from stoker.service.api.read_options import ReadOptions
from stoker.service.client import actions as a
from stoker.service.client import logic
from stoker.service.client.connections import local_readers
from stoker.service.client.connections.connections import WorkerConnections
from stoker.service.client.connections.local_readers import LocalIteration
from stoker.service.client.connections.route import Route
from stoker.service.client.measure.latest_reading import LatestReading
from stoker.service.client.measure.reading import Reading, TrainerWait
from stoker.service.client.measure.service_bottleneck import find_bottleneck
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.client.orders.ready_elements import ready_elements
from stoker.service.client.remote_traceback import with_source_lines
from stoker.service.control import rpc_session
from stoker.service.keys import KEY_BYTES
from stoker.service.process.clock import CLOCK, Clock
from stoker.service.process.host import load
from stoker.service.process.shutdown import run_apart
from stoker.service.rules.checks import deleted, frees_local_tasks
from stoker.wire import frames as f

logger = logging.getLogger("stoker.client")

FAREWELL_SECONDS = 2.0
LONGEST_TICK_SECONDS = 0.25
"""Interval of the timers while every task has a connection. With 0.05 they took a quarter of the
trainer's CPU time where elements come one at a time."""

OPENING_SECONDS = 0.25
"""Longest wait for the first tasks when a gradual reader is opened; it goes on without them."""

STALL_SECONDS = 10.0
"""Time after which a waiting read logs what it waits for, and the service is the bottleneck, in
seconds."""


class ServiceStream(Stream):
    """The elements of one iteration, as they arrive.

    Args:
        hello: names the job and its dataset.
        options: the options of the reader.
        spec: the expected element_spec.
        classes: the classes to rebuild namedtuples and dataclasses with.
        statistics: counts ``tasks_lost``, ``splits_lost``, ``elements_lost``, ``epochs_shared`` and
            the totals of tasks; shows ``shared_memory_bytes``.
        meters: of the pipeline that reads this stream.
    """

    ready: Iterator[Any] = iter(())

    def __init__(
        self,
        hello: m.ClientHello,
        options: ReadOptions,
        spec: Spec,
        classes: tuple[type, ...],
        statistics: Statistics,
        meters: Meters,
    ) -> None:
        self._pid = os.getpid()
        self._clock: Clock = getattr(options.service, "clock", CLOCK)
        self._statistics = statistics
        self._meters = meters
        statistics.watch("shared_memory_bytes", lambda: self._connections.shared_bytes)
        statistics.watch("losses_open", lambda: not self._logic.final_losses.known)
        self._spec: Spec | None = spec
        # Reentrant: `_report` calls `_is_blocked`, which acquires the lock too.
        self._lock = threading.RLock()
        # Two threads of a user may read one iterator: one waits here, not in the poller.
        self._taking = threading.Lock()
        # Waking the poller costs a system call: only if another thread is known to wait.
        self._waiter: int | None = None  # the thread in `poll`
        self.work: Work = Work(threads=1)  # workers compute ahead of the reader
        self._connections = WorkerConnections(
            Route(options.data_transfer_protocol),
            TypeResolver(classes=classes),
            self._connection_opened,
            received=self._worker_message,
            ended=self._connection_ended,
            clock=self._clock,
        )
        self._heartbeat = 1.0
        self._next_heartbeat = math.inf  # none before the welcome
        self._chunk_size = 0
        self._taken_at = self._warned_at = self._opened_at = self._clock.now()
        self._waiting_since: float | None = None  # of the read that waits for its chunk
        self._reads = Stopwatch(self._clock.now)  # from the first read to the end
        self._trainer_wait = TrainerWait()
        self.latest = LatestReading(self.reading)
        self._ended = False
        self._closed = False
        self._failure: StokerError | None = None
        self._crashed = False
        self._answered = threading.Event()
        self.was_read = False
        self.iteration: LocalIteration | None = None
        # Iterators of this process are notified here: a message of the dispatcher would race with
        # their first read. (docs/decisions/057)
        if frees_local_tasks(hello.parameters):
            address = options.dispatcher_address
            self.iteration = LocalIteration(address, hello.job, hello.epoch)
        # Known by it, the client is registered once, even if the answer is lost.
        hello = msgspec.structs.replace(hello, key=secrets.token_bytes(KEY_BYTES))
        self._logic = logic.Client(hello, options, random.Random(), self._clock.now())
        with self._lock:  # the callbacks may run immediately, and use the session
            self._session = rpc_session.Session(
                options.dispatcher_address,
                opened=partial(self._handle, self._logic.session_opened),
                received=self._session_message,
                lost=partial(self._handle, self._session_lost),
                tick=self._tick,
                failed=self._session_failed,
                clock=self._clock,
            )
        local_readers.opened(self)
        if options.tensorflow_timing:
            self._answered.wait(OPENING_SECONDS)

    # ── the three verbs ───────────────────────────────────────────────────────────────────────────
    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy:
            max_elements = 1  # an element taken from `ready` counts as consumed
        chunk = list(islice(self.ready, max_elements))
        if not chunk:
            try:
                self._take()
            except StopIteration:
                return []
            chunk = list(islice(self.ready, max_elements))
        return chunk

    def advance(self, n: int) -> int:
        skipped = len(list(islice(self.ready, n)))
        with self._lock:
            rest = self._logic.advance(n - skipped)
        return skipped + (super().advance(n - skipped) if rest is None else rest)

    def filled(self) -> float:
        with self._lock:
            return self._logic.consumption.filled(self._chunk_size - length_hint(self.ready))

    def close(self) -> None:
        if self._pid != os.getpid():
            return  # the threads and sockets are the parent's
        if run_apart(self.close):
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._reads.run(0)
            self._close_logic()
            self._logic.drop_received()
            self.latest.update()
            self.ready = iter(())
            self._notify()
            deadline = self._clock.now() + FAREWELL_SECONDS
            farewell = self._logic.farewell(self._clock.now())
        local_readers.closed(self, self._error_of_others())
        self._connections.flush()
        self._session.close(FAREWELL_SECONDS, farewell)
        self._connections.wait_disconnected(max(0.0, deadline - self._clock.now()))
        self._connections.close()

    def delete(self, error: StokerError) -> None:
        """Close the stream, unless it was read; each read raises `error`."""
        if self._pid != os.getpid():
            return  # nor can its lock be acquired if another thread of the parent had it
        with self._lock:
            if self.was_read or self._closed or self._failure is not None:
                return
            self._failure = error
        self.close()

    def _error_of_others(self) -> ErrorRecord | None:
        """Return the error of those that would read on where this stream stops, if they may not."""
        task = self._logic.partly_read
        if self.iteration is None or self._failure is not None or task is None:
            return None
        return to_record(deleted(task.task_id, task.worker, self.iteration.job))

    def _close_logic(self) -> None:
        if self._crashed:
            # The logic may be half changed; what was not consumed counts as lost.
            self._session.send(m.ClientClose())
            return
        try:
            self._execute(self._logic.close(self._chunk_size - length_hint(self.ready)))
        except Exception as error:  # noqa: BLE001 - logged; the iterator is closed all the same
            self._crash(error)

    def _take(self) -> None:
        """Get the next chunk, or raise its error, or StopIteration at the end."""
        with self._taking:
            began = self._clock.now()
            item = self._wait_item(began)
        self._connections.flush()
        if isinstance(item, ReceivedChunk):
            if item.error is not None:
                raise from_record(with_source_lines(item.error))
            if self._spec is not None:
                self._check_spec(self._spec, item.elements[0])
                self._spec = None
            self._chunk_size = size = len(item.elements)
            waited = self._taken_at - began
            self.work.busy += waited
            self.work.durations.add(waited / size, size)
            self.ready = ready_elements(item.elements, item.nbytes)
            return
        if isinstance(item, StokerError):
            self._fail(item)
        if self._logic.shared and not self._ended:
            # An epoch that another client opened too has only a part of the elements for this one.
            self._statistics.add("epochs_shared", 1)
        self._ended = True
        self._reads.run(0)
        raise StopIteration

    def _wait_item(self, began: float) -> logic.Item:
        """Return the next chunk, the end or an error; meanwhile receive on this thread."""
        if not (self._ended or self._closed):
            self._reads.run(1, began)
        worked = began - self._taken_at
        if (item := self._look(worked)) is not None:
            return item
        self._warned_at = self._waiting_since = began
        try:
            while item is None:
                self._connections.flush()
                self._connections.poller.poll(STALL_SECONDS)
                self._waiter = None
                item = self._look(worked)
        finally:  # also if an error is raised, after which the user may read on
            with self._lock:
                self._waiting_since = None
                self._logic.wait.run(0, self._clock.now())
        return item

    def _warn_if_stalled(self, now: float) -> None:
        """Log what a read waits for, every 10 s. Under the lock."""
        since = self._waiting_since
        if since is not None and now - self._warned_at >= STALL_SECONDS:
            self._warned_at = now
            waited = now - since
            logger.warning(
                "no element for %.0f s: waiting for %s", waited, self._logic.waiting_for()
            )

    def reading(self) -> Reading:
        """Return where the time of this client and its tasks goes."""
        with self._lock:
            found = self._logic.reading(self._reads.seconds(), self._clock.now())
        return replace(found, load=load())

    def bottleneck(self) -> Bottleneck:
        """Return what limits the iterator of the pipeline that reads; from any thread.

        The iterator measures a sample of its reads, which may not include one that blocks.
        """
        judged = self._meters.recording.judge()
        # A read that blocks for 10 s is no sample, so that the sampled reads may look fast.
        if judged is not None and not self._is_blocked():
            return judged
        found = find_bottleneck(self.reading())
        return msgspec.structs.replace(found, read=None if judged is None else judged.read)

    def _is_blocked(self) -> bool:
        """Return whether the thread that reads has waited for long."""
        with self._lock:
            return self._logic.wait.lap(self._clock.now()) >= STALL_SECONDS

    def _look(self, worked: float) -> logic.Item | None:
        """Return what has arrived; with ``None`` this thread is known to wait."""
        with self._lock:
            item = self._take_item(worked)
            if item is None:
                self._waiter = threading.get_ident()
            return item

    def _count(self) -> None:
        """Add what the logic has counted to the statistics. Under the lock."""
        for name, count in self._logic.take_counts().items():
            self._statistics.add(name, count)

    def _notify(self) -> None:
        """Make the thread that waits look again, if it is another one. Under the lock."""
        if self._waiter is not None and self._waiter != threading.get_ident():
            self._waiter = None
            self._connections.poller.wake()

    def _take_item(self, worked: float) -> logic.Item | None:
        """Return the next chunk, the end or an error; ``None`` to wait. Under the lock."""
        if self._failure is not None:
            if self._crashed and not self._closed:
                return self._failure
            raise self._failure
        if self._closed:  # by another thread
            raise FailedPreconditionError("this iterator was closed while it was read")
        if (loss := self._logic.losses.take()) is not None:
            raise DataLossError(loss)
        self.was_read = True
        try:
            item, actions = self._logic.take(worked, self._clock.now())
            self._chunk_size = 0
            self._execute(actions)
            if not isinstance(item, ReceivedChunk) or item.repeated:
                self._count()
        except BaseException as error:
            self._crash(error)
            if not isinstance(error, Exception):
                raise
            return self._failure
        if item is not None:
            self._taken_at = self._clock.now()
        return item

    def _check_spec(self, spec: Spec, element: Any) -> None:
        if not compatible(spec, spec_of(element)):
            self._fail(
                InvalidArgumentError(
                    f"the elements do not match `element_spec`: it is {spec}, the first element "
                    f"is {spec_of(element)}; correct it, or leave it out"
                )
            )

    def _fail(self, error: StokerError) -> NoReturn:
        """Close the stream; every further read raises the same error."""
        self._failure = error
        self.close()
        raise error

    # ── the session (called on the control loop) ──────────────────────────────────────────────────
    def _handle(self, event: Callable[[float], list[a.Action]]) -> None:
        """Pass an event to the logic, with the time, and execute its actions."""
        with self._lock:
            if not self._crashed:
                self._execute(event(self._clock.now()))

    def _session_message(self, message: m.FromDispatcher) -> None:
        with self._lock:
            if self._crashed:
                return
            before = self._logic.losses.totals
            self._execute(self._logic.session_message(message, self._clock.now()))
            for name, count in self._logic.losses.totals.items():
                self._statistics.add(name, count - before[name])
            self._notify()
        if isinstance(message, m.Tasks | m.Refused):
            self._answered.set()
        self._connections.flush()

    def _session_lost(self, now: float) -> list[a.Action]:
        return self._logic.session_lost(now, self._session.failure)

    def _session_failed(self, error: Exception) -> None:
        """Raise an error at the next read: a callback raised, or there is no dispatcher."""
        self._answered.set()
        with self._lock:
            if isinstance(error, StokerError):
                self._logic.fail(error)
                self._notify()
            else:
                self._crash(error)

    def _crash(self, error: BaseException) -> None:
        """Fail all further reads: the logic may be half changed. Under the lock."""
        self._crashed = True
        if not isinstance(error, Exception):
            self._failure = FailedPreconditionError(
                "this iterator was interrupted (Ctrl-C) while it handled a message, and an element "
                "may be lost; make a new one with iter(dataset)"
            )
            return
        logger.error("reading ends by an internal error", exc_info=error)
        if self._failure is None:
            self._failure = FailedPreconditionError(
                f"internal error of the iterator: {type(error).__name__}: {error}"
            )
            self._failure.__cause__ = error
        self._notify()

    def _tick(self) -> None:
        now = self._clock.now()
        report = None
        if now >= self._next_heartbeat and not (self._closed or self._crashed):
            report = self._report(now)  # not under the lock: frames arrive meanwhile
        with self._lock:
            if self._closed or self._crashed:
                return
            if report is not None:
                # An epoch of seconds is shown in the status of the service, too.
                age = max(1.0, now - self._opened_at)
                self._next_heartbeat = now + min(self._heartbeat, age)
                self._session.send(m.Heartbeat(reading=report))
            self._execute(self._logic.tick(now))
            self._warn_if_stalled(now)
            ending = self._logic.end.expected or self._logic.final_losses.asked
            if self._logic.error is not None or ending:
                self._notify()
            # Fast ticks only while a connection is to be opened again, which the ticks do.
            quarter = min(self._heartbeat / 4, LONGEST_TICK_SECONDS)
            seconds = rpc_session.TICK_SECONDS if self._logic.tasks.reconnecting else quarter
            self._session.tick_seconds = max(rpc_session.TICK_SECONDS, seconds)
        self._connections.flush()

    def _report(self, now: float) -> m.ReadReport:
        """Return the totals for the status of the service, with the bottleneck."""
        try:
            found = self.bottleneck()
        except Exception as error:  # it must not end the reading
            logger.debug("no bottleneck was found", exc_info=error)
            text = f"No bottleneck was found: {type(error).__name__}: {error}."
            found = Bottleneck("unknown", text)
        with self._lock:
            waited = self._logic.wait.seconds(self._clock.now())
            return m.ReadReport(
                self._logic.consumption.elements,
                self._logic.consumption.bytes,
                self._trainer_wait.until(waited, found.read, blocked=self._is_blocked()),
                elapsed=now - self._opened_at,
                bottleneck=found.kind,
                # The path of the user's file may have bytes that are no text.
                sentence=found.sentence.encode(errors="replace").decode(),
                position=self._logic.position,
            )

    # ── workers (called on the threads of the connections) ────────────────────────────────────────
    def _connection_opened(self, number: int, protocol: str) -> None:
        self._handle(lambda _: self._logic.connected(number, protocol))
        self._connections.flush()

    def _worker_message(self, number: int, message: f.Message) -> None:
        if isinstance(message, f.Welcome):
            self._connections.set_peer_timeout(number, message.peer_timeout_ms / 1000)
        with self._lock:
            if self._crashed:
                return
            try:
                self._execute(self._logic.worker_message(number, message, self._clock.now()))
                self._count()
            except BaseException as error:
                self._crash(error)
                if not isinstance(error, Exception):
                    raise
            self._notify()
        if isinstance(message, f.Bye):
            self._connections.disconnect(number)
        self._connections.flush()

    def _connection_ended(self, number: int, error: BaseException | None) -> None:
        with self._lock:
            if self._crashed:
                return
            try:
                if isinstance(error, FailedPreconditionError):
                    self._logic.fail(error)  # trying again would not help
                elif isinstance(error, Exception) and not isinstance(error, StokerError):
                    self._crash(error)
                else:
                    why = str(error) or "the connection was closed"
                    now = self._clock.now()
                    self._execute(self._logic.connection_lost(number, why, now))
            except Exception as failure:  # noqa: BLE001 - raised as the iterator's failure
                self._crash(failure)
            self._notify()
        self._connections.flush()

    # ── actions ───────────────────────────────────────────────────────────────────────────────────
    def _execute(self, actions: list[a.Action]) -> None:
        """Execute actions, under the lock; messages to workers are sent by the next `flush`."""
        for action in actions:
            if isinstance(action, a.ToWorker):
                self._connections.put(action.connection, action.message)
            elif isinstance(action, a.ToDispatcher):
                self._send_to_dispatcher(action.message)
            elif isinstance(action, a.Connect):
                self._connections.connect(action.connection, action.task)
            elif isinstance(action, a.Disconnect):
                if not action.farewell:  # otherwise the worker says `Bye`
                    self._connections.disconnect(action.connection)
            elif isinstance(action, a.SetHeartbeat):
                self._heartbeat = action.milliseconds / 1000
                self._next_heartbeat = min(self._next_heartbeat, self._clock.now())
            else:
                logger.warning("%s", action.text)

    def _send_to_dispatcher(self, message: m.FromClient) -> None:
        try:
            self._session.send(message)
        except InvalidArgumentError as error:  # nobody would answer: the user must not wait
            self._logic.fail(error)
            self._notify()
