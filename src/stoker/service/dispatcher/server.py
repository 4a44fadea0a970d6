"""The dispatcher's shell: gRPC in front of `logic.Dispatcher`, on the process's control loop."""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

from stoker.errors import (
    FailedPreconditionError,
    StokerError,
    UnavailableError,
    WireError,
    to_record,
)
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig, config_of
from stoker.service.control import rpc, rpc_server
from stoker.service.control.control_loop import control_loop, run_on
from stoker.service.dispatcher.commits.journal_gate import JournalGate
from stoker.service.dispatcher.commits.journal_position import OutdatedJournalError
from stoker.service.dispatcher.logic import Action, Dispatcher, Send
from stoker.service.dispatcher.peers.probing import probe_reply
from stoker.service.dispatcher.state.state import State
from stoker.service.process.clock import CLOCK, Clock
from stoker.service.process.host import host_id
from stoker.service.process.host_addresses import loopback_of, own_host
from stoker.service.process.open_files import raise_open_files_limit
from stoker.service.process.shutdown import run_apart
from stoker.wire.addresses import format_address, is_loopback, is_unspecified
from stoker.wire.frames import UNDECODABLE
from stoker.wire.refusal_log import RefusalLog

logger = logging.getLogger("stoker.dispatcher")

TICK_SECONDS = 0.25


class DispatchServer:
    """A dispatcher that serves in this process.

    Args:
        config: its configuration, by default ``DispatcherConfig()``; or give its fields by name.
        start: serve immediately; otherwise call `start`.
        clock: times leases, ticks and timeouts, also of clients that are given this object.
        fields: fields of `DispatcherConfig`.

    Raises:
        InvalidTypeError: if `config` is not a DispatcherConfig, or a field does not exist.
        InvalidArgumentError: if a field is not valid.
        UnavailableError: if the port cannot be bound.

    Example:
        >>> with DispatchServer(port=0) as dispatcher:
        ...     dispatcher.target.startswith("grpc://localhost:")
        True

    It raises the limit of open files of this process: each session has a descriptor.

    It stops by itself after an internal error that leaves its state in doubt, and when a worker or
    trainer knows more than its journal: `join` returns, and `failure` is the error.

    As `tf.data.experimental.service.DispatchServer`.
    """

    def __init__(
        self,
        config: DispatcherConfig | None = None,
        start: bool = True,
        *,
        clock: Clock = CLOCK,
        **fields: Any,
    ) -> None:
        self.clock = clock
        self._config = config_of(DispatcherConfig, config, fields)
        self._state = "new"
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._port = 0
        self.failure: StokerError | None = None
        """The error by which the dispatcher has stopped, if it has."""
        self.places_grow = False
        """Every worker that registers gets a shard under static sharding; set it before `start`,
        and only without `worker_addresses`."""
        if start:
            self.start()

    @property
    def target(self) -> str:
        """Address for clients and workers: ``"grpc://localhost:5050"``.

        On all interfaces, its host is the address of the interface of the default route.

        Raises:
            FailedPreconditionError: before `start`, if the port is 0: `start` chooses it.
        """
        port = self._port or self._config.port
        if not port:
            raise FailedPreconditionError(
                "the dispatcher has no target before start(), which chooses its port; call it, or "
                "give a port"
            )
        return f"{self._config.protocol}://{format_address(self._own_host, port)}"

    @cached_property
    def _own_host(self) -> str:
        return own_host(self._config.host)  # it may wait for a name server

    def start(self) -> None:
        """Start to serve; idempotent.

        Raises:
            FailedPreconditionError: if it was stopped.
        """
        with self._lock:
            if self._state == "stopped":
                raise FailedPreconditionError(
                    "Server cannot be started after it has been stopped. Make a new DispatchServer"
                )
            if self._state == "new":
                # Each session has a descriptor; the usual soft limit is 1,024.
                raise_open_files_limit()
                # Only a warning: all peers may be on this machine.
                self._warn_if_local()
                self._control = control_loop(self.clock)
                self._loop = self._control.acquire()
                gate = JournalGate()
                state = None
                try:
                    if self._config.fault_tolerant_mode and self._config.work_dir:
                        state = gate.open(self._config.work_dir, self._loop, self.clock)
                    run_on(self._loop, self._start(gate, state), 30)
                except BaseException:
                    self._control.release()
                    raise
                self._state = "started"

    def stop(self) -> None:
        """End all sessions and free the port; idempotent.

        On a thread of stoker, where a finalizer may call it, it does not wait for the end.
        """
        if run_apart(self.stop):
            return
        with self._lock:
            if self._state == "started":
                run_on(self._loop, self._shell.stop(), 30)
                self._control.release()
            self._state = "stopped"
            self._ended.set()

    def join(self) -> None:
        """Block until `stop` is called, or the dispatcher has stopped by an error."""
        self._ended.wait()

    def num_workers(self) -> int:
        """Return the number of registered workers."""
        return len(self._shell.logic.state.workers)

    def _warn_if_local(self) -> None:
        """Warn of a name by which others look for this machine, but which is loopback here."""
        host = self._config.host
        if not (is_loopback(host) or is_unspecified(host)) and (here := loopback_of(host)):
            logger.warning(
                "host %r is %s on this machine, which others cannot reach; give an address of its "
                "network, or 0.0.0.0 for all interfaces",
                host,
                here,
            )

    async def _start(self, gate: JournalGate, state: State | None) -> None:
        try:
            self._shell = _Shell(
                self._config,
                self._failed,
                gate,
                state=state,
                places_grow=self.places_grow,
                clock=self.clock,
            )
            await self._shell.start(self._port or self._config.port)
        except BaseException:
            await gate.close()
            raise
        self._port = self._shell.server.port

    def _failed(self, error: Exception) -> None:
        self.failure = error if isinstance(error, StokerError) else _internal_error(error)
        self._ended.set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


class _Shell:
    """Run the logic's actions. Everything happens on the event loop, so nothing is locked.

    An unexpected exception of the logic is logged. Before a change of the state it fails the
    session or call; after one, and where no peer waits for an answer, it ends the server.

    Args:
        config: the configuration.
        failed: called when the server has ended by an exception.
        gate: stores records, and holds actions and replies back until they are durable.
        state: the state to continue; a new one by default.
        places_grow: as of `DispatchServer`.
        clock: as of `DispatchServer`.
    """

    def __init__(
        self,
        config: DispatcherConfig,
        failed: Callable[[Exception], None],
        gate: JournalGate,
        state: State | None,
        places_grow: bool,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self.logic = Dispatcher(
            config,
            random.SystemRandom(),
            self._clock.now(),
            journaled=gate.journaled,
            state=state,
            places_grow=places_grow,
            host=host_id(),
        )
        self._gate = gate
        self.server = rpc_server.RpcServer(self, config.peer_timeout_ms / 1000)
        self._config = config
        self._failed = failed
        self._sessions: dict[int, tuple[Callable[[bytes], None], Callable[[], None]]] = {}
        self._refusals = RefusalLog(logger, clock.now)
        self._ticker: asyncio.Task[None] | None = None
        self._works = False
        self._stopping: asyncio.Task[None] | None = None
        self._crashing: asyncio.Task[None] | None = None
        self._crashed = False

    async def start(self, port: int) -> None:
        self._gate.watch(self._execute, self._crash)
        # The logic has recorded its start.
        self._carry_out([])
        await self.server.start(self._config.host, port)
        self._ticker = asyncio.ensure_future(self._tick())

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())
        await self._stopping

    async def _stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        # Before the sessions end, so that clients get the reason.
        self._carry_out(self.logic.stop())
        await self.server.stop()
        await self._gate.close()

    def opened(self, peer: int, send: Callable[[bytes], None], close: Callable[[], None]) -> None:
        self._sessions[peer] = (send, close)

    def received(self, peer: int, data: bytes) -> None:
        # The state may be half changed: nothing that depends on it may leave.
        if self._crashed:
            return
        try:
            message = rpc.decode_to_dispatcher(data)
        except UNDECODABLE as error:
            self.refused(f"session {peer}", f"an invalid message: {error}")
            refusal = m.Refused(to_record(WireError(f"not a control message: {error}")))
            self._sessions[peer][0](rpc.encode(refusal))
            self._sessions[peer][1]()
            return
        commits = self.logic.commits
        try:
            self._carry_out(self.logic.received(peer, message, self._clock.now()))
        except OutdatedJournalError as error:
            self._crash(error)
        except Exception as error:
            if self.logic.commits != commits:
                self._crash(error)
            else:
                logger.exception("a %s of session %d failed", type(message).__name__, peer)
                self._carry_out(self.logic.refuse(peer, _internal_error(error)))

    def closed(self, peer: int) -> None:
        del self._sessions[peer]
        self._run(self.logic.disconnected, peer, self._clock.now())

    async def answer(self, data: bytes) -> bytes:
        reply = self._answer(data)
        try:
            # The reply leaves when the records of the request, and all before, are durable.
            await self._gate.durable()
        except StokerError as error:
            return rpc.encode(m.Failed(to_record(error)))
        return reply

    def _answer(self, data: bytes) -> bytes:
        if self._crashed:
            return rpc.encode(m.Failed(to_record(UnavailableError("the dispatcher stops"))))
        try:
            request = rpc.decode_request(data)
        except UNDECODABLE as error:
            self.refused("a caller", f"an invalid request: {error}")
            return rpc.encode(m.Failed(to_record(WireError(f"not a request: {error}"))))
        if isinstance(request, m.Probe):
            # Not the logic, which has no clock of the day.
            return rpc.encode(probe_reply(self.logic.state, time.time(), self._gate.journaled))
        commits = self.logic.commits
        try:
            reply, actions = self.logic.call(request, self._clock.now())
            self._carry_out(actions)
            return rpc.encode(reply)
        except Exception as error:
            if self.logic.commits != commits:
                self._crash(error)
            else:
                logger.exception("a %s failed", type(request).__name__)
            return rpc.encode(m.Failed(to_record(_internal_error(error))))

    def refused(self, peer: str, reason: object, *, foreign: bool = False) -> None:
        self._refusals.add(peer, reason, foreign=foreign)

    async def _tick(self) -> None:
        while not self._crashed:
            await asyncio.sleep(TICK_SECONDS)
            self._refusals.warn_if_due()
            self._run(self.logic.tick, self._clock.now())

    def _work(self) -> None:
        self._works = False
        self._run(self.logic.work, self._clock.now())

    def _run(self, method: Callable[..., list[Action]], *arguments: Any) -> None:
        """Call a method that answers no peer; an exception of it ends the server."""
        if self._crashed:
            return
        try:
            self._carry_out(method(*arguments))
        except Exception as error:  # noqa: BLE001 - logged by `_crash`
            self._crash(error)

    def _crash(self, error: Exception) -> None:
        """Stop to serve: the state was left half changed, or is ahead of its journal."""
        if self._crashed:
            return
        self._crashed = True
        self._gate.abandon()
        if isinstance(error, StokerError):
            logger.critical("the dispatcher stops: %s", error)
        else:
            logger.critical("the dispatcher stops: an internal error", exc_info=error)
        self._crashing = asyncio.ensure_future(self._stop_after(error))

    async def _stop_after(self, error: Exception) -> None:
        try:
            await self.stop()
        finally:
            self._failed(error)

    def _carry_out(self, actions: list[Action]) -> None:
        if self.logic.has_work and not self._works:
            self._works = True
            # In a later turn of the loop, so that messages are handled between two slices.
            asyncio.get_running_loop().call_soon(self._work)
        for line in self.logic.take_log():
            logger.log(line.level, "%s", line.text, extra=line.fields)
        self._gate.pass_on(self.logic.take_unit(), actions)

    def _execute(self, action: Action) -> None:
        session = self._sessions.get(action.peer)
        if session is None:
            return
        if isinstance(action, Send):
            session[0](rpc.encode(action.message))
        else:
            session[1]()


def _internal_error(error: Exception) -> StokerError:
    found = StokerError(f"internal error of the dispatcher: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
