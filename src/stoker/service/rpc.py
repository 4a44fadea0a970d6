"""Transport of the control plane: gRPC, with msgspec messages instead of generated code.

It uses grpclib, gRPC in pure Python on asyncio, not grpcio: trainers fork, as PyTorch's DataLoader
does, and in a forked child of a process with a busy grpcio stream a new channel hung or aborted in
4 of 27 forks with grpcio's fork support, in 16 of 30 without it, and in 0 of 60 with grpclib
(measured as described in docs/architecture.md).
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from grpclib.client import Channel, StreamStreamMethod, UnaryUnaryMethod
from grpclib.config import Configuration
from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.server import Stream as ServerStream

from stoker.errors import StokerError, UnavailableError, from_record, to_record
from stoker.service import messages as m
from stoker.service.config import join_address, split_address
from stoker.service.control_loop import control_loop, run_on
from stoker.service.grpc_server import GrpcServer
from stoker.service.receiving import HELLO_SECONDS, MAX_HELLO_BYTES, MAX_MESSAGE_BYTES, Receiver

SESSION = "/stoker.Dispatcher/Session"
CALL = "/stoker.Dispatcher/Call"

logger = logging.getLogger("stoker.rpc")

TICK_SECONDS = 0.05
WARN_SECONDS = 10.0
FAREWELL_SECONDS = 2.0

# It logs every broken session at INFO; stoker logs them with more detail.
logging.getLogger("grpclib").setLevel(logging.WARNING)

_BROKEN = (OSError, GRPCError, ProtocolError, StreamTerminatedError, asyncio.TimeoutError)

_CONFIG = Configuration(
    _keepalive_time=10,
    _keepalive_timeout=10,
    _keepalive_permit_without_calls=True,
)


# ── messages to bytes ────────────────────────────────────────────────────────────────────────────
class _Bytes(CodecBase):
    """A codec that passes bytes through: messages are encoded in this module."""

    __content_subtype__ = "msgpack"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


encode = msgspec.msgpack.Encoder().encode
decode_to_dispatcher = msgspec.msgpack.Decoder(m.ToDispatcher).decode
decode_from_dispatcher = msgspec.msgpack.Decoder(m.FromDispatcher).decode
decode_request = msgspec.msgpack.Decoder(m.Request).decode
decode_reply = msgspec.msgpack.Decoder(m.Reply).decode


# ── server ──────────────────────────────────────────────────────────────────────────────────────
class Handlers(Protocol):
    """Callbacks of a server, called on the loop."""

    def opened(self, peer: int, send: Callable[[bytes], None], close: Callable[[], None]) -> None:
        """Handle a new session; `send` and `close` may be called from the loop only."""

    def received(self, peer: int, data: bytes) -> None:
        """Handle a message of a session."""

    def closed(self, peer: int) -> None:
        """Handle the end of a session."""

    def answer(self, data: bytes) -> bytes:
        """Return the reply to a call."""

    def refused(self, peer: str, reason: object) -> None:
        """Handle a connection that was closed because of what the peer at an address sent."""


class RpcServer:
    """A gRPC server that passes sessions and calls to `handlers`. Use on the loop only."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._last_peer = 0
        self._sessions: dict[asyncio.Task[Any], asyncio.Queue[bytes | None]] = {}
        self._receiver = Receiver()
        self._server = GrpcServer(handlers.refused, [self], codec=_Bytes(), config=_CONFIG)
        self.port = 0

    def __mapping__(self) -> dict[str, Handler]:
        return {
            SESSION: Handler(self._session, Cardinality.STREAM_STREAM, None, None),
            CALL: Handler(self._call, Cardinality.UNARY_UNARY, None, None),
        }

    async def start(self, host: str, port: int) -> None:
        """Bind the address and serve.

        Raises:
            UnavailableError: if the address cannot be bound.
        """
        try:
            listener = _listen(host, port)
            await self._server.start(sock=listener)
        except OSError as error:
            address = join_address(host, port)
            raise UnavailableError(
                f"cannot serve on {address}: {error.strerror or error}"
            ) from error
        self.port = listener.getsockname()[1]

    async def stop(self) -> None:
        """End all sessions and free the port.

        Sessions end regularly first: grpclib cancels handlers without notifying the peer, which
        would believe the session to be open.
        """
        for send_queue in self._sessions.values():
            send_queue.put_nowait(None)
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=FAREWELL_SECONDS)
        self._server.close()
        await self._server.wait_closed()

    async def _session(self, stream: "ServerStream[bytes, bytes]") -> None:
        self._last_peer += 1
        peer = self._last_peer
        send_queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        this = asyncio.current_task()
        assert this is not None
        self._sessions[this] = send_queue
        sender = asyncio.ensure_future(_drain(send_queue, stream))
        self._handlers.opened(peer, send_queue.put_nowait, lambda: send_queue.put_nowait(None))
        receiver = asyncio.ensure_future(self._receive_all(peer, stream))
        try:
            await asyncio.wait({sender, receiver}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._sessions[this]
            self._handlers.closed(peer)
            for task in (sender, receiver):
                task.cancel()
            await asyncio.gather(sender, receiver, return_exceptions=True)

    async def _receive_all(self, peer: int, stream: "ServerStream[bytes, bytes]") -> None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                data = await self._receiver.receive(stream, MAX_HELLO_BYTES)
            while data is not None:
                self._handlers.received(peer, data)
                data = await self._receiver.receive(stream, MAX_MESSAGE_BYTES)
        except TimeoutError:
            self._handlers.refused(_address(stream), "it sent no whole message in time")
        except StokerError as error:
            self._handlers.refused(_address(stream), error)
        except _BROKEN:
            pass

    async def _call(self, stream: "ServerStream[bytes, bytes]") -> None:
        try:
            data = await self._receiver.receive(stream, MAX_MESSAGE_BYTES)
        except StokerError as error:
            self._handlers.refused(_address(stream), error)
            await stream.send_message(encode(m.Failed(to_record(error))))
            return
        if data is not None:
            await stream.send_message(self._handlers.answer(data))


def _address(stream: "ServerStream[bytes, bytes]") -> str:
    address = stream.peer.addr()
    return "an unknown peer" if address is None else join_address(*address[:2])


async def _drain(
    send_queue: "asyncio.Queue[bytes | None]", stream: "ServerStream[bytes, bytes]"
) -> None:
    with suppress(*_BROKEN):
        while (data := await send_queue.get()) is not None:
            await stream.send_message(data)


def _numeric(host: str) -> str:
    # "localhost" has two addresses on most machines, but one port must mean one socket. And asyncio
    # resolves names on a thread, which adds 0.9 ms to the first element and the end of an iterator.
    return "127.0.0.1" if host == "localhost" else host


def _listen(host: str, port: int) -> socket.socket:
    bind_host = _numeric(host)
    family = socket.AF_INET6 if ":" in bind_host else socket.AF_INET
    listener = socket.create_server((bind_host, port), family=family, backlog=1024)
    listener.setblocking(False)
    # Accepted sockets inherit it. grpclib sets it only on listeners that asyncio creates; without
    # it the second of two small messages waits 40 ms for the peer's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


# ── client ───────────────────────────────────────────────────────────────────────────────────────
class Session:
    """A stream to the dispatcher that reconnects whenever it breaks, until closed.

    Args:
        dispatcher_address: "host:port".
        opened: called on the loop when the stream is open.
        received: called on the loop with each message.
        lost: called on the loop when the stream breaks or cannot be opened.
        tick: called on the loop every `TICK_SECONDS`, connected or not.
    """

    def __init__(
        self,
        dispatcher_address: str,
        opened: Callable[[], None],
        received: Callable[[m.FromDispatcher], None],
        lost: Callable[[], None],
        tick: Callable[[], None],
    ) -> None:
        self._host, self._port = split_address(dispatcher_address)
        self._opened, self._received, self._lost, self._tick = opened, received, lost, tick
        self._control = control_loop()
        self._loop = self._control.acquire()
        self._send_queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = False
        self._task = asyncio.run_coroutine_threadsafe(self._run(), self._loop)

    def send(self, message: m.ToDispatcher) -> None:
        """Send on the open stream, from any thread; without one the message is dropped."""
        if not self._closed:
            self._loop.call_soon_threadsafe(self._send_queue.put_nowait, encode(message))

    def close(self, timeout: float = 2.0) -> None:
        """Send the queued messages and end the stream for good. Not from the loop's thread."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._send_queue.put_nowait, None)
        try:
            self._task.result(timeout)
        except Exception:  # noqa: BLE001 - close() ends the session after any error
            self._task.cancel()
        self._control.release()

    async def _run(self) -> None:
        ticker = asyncio.ensure_future(self._keep_ticking())
        try:
            await self._keep_open()
        except Exception:
            logger.exception(
                "the session with %s:%d ended by an internal error", self._host, self._port
            )
            raise
        finally:
            ticker.cancel()

    async def _keep_ticking(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._tick()

    async def _keep_open(self) -> None:
        delay = 0.05
        while not self._closed:
            try:
                async with Channel(
                    _numeric(self._host), self._port, codec=_Bytes(), config=_CONFIG
                ) as channel:
                    method: Any = StreamStreamMethod(channel, SESSION, None, None)  # type: ignore[arg-type]
                    async with method.open() as stream:
                        await stream.send_request()
                        delay = 0.05
                        self._send_queue = asyncio.Queue()
                        self._opened()
                        await self._converse(stream)
            except _BROKEN:
                pass
            if not self._closed:
                self._lost()
                await self._pause(delay)
                delay = min(2 * delay, 2.0)

    async def _pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until closed."""
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(seconds):
                while await self._send_queue.get() is not None:
                    continue

    async def _converse(self, stream: Any) -> None:
        async def send_all() -> None:
            while (data := await self._send_queue.get()) is not None:
                await stream.send_message(data)
            await stream.end()

        async def receive_all() -> None:
            while (data := await stream.recv_message()) is not None:
                self._received(decode_from_dispatcher(data))

        tasks = {asyncio.ensure_future(send_all()), asyncio.ensure_future(receive_all())}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        # All are awaited: asyncio logs an exception that nobody has retrieved.
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


def call(dispatcher_address: str, request: m.Request, timeout: float) -> m.Reply:
    """Send the dispatcher a request and return its reply, from any thread but the loop's.

    Raises:
        UnavailableError: if it cannot be reached, or does not answer within `timeout` seconds.
        StokerError: the error with which it answered.
    """
    control = control_loop()
    loop = control.acquire()
    try:
        data = run_on(loop, _call(dispatcher_address, encode(request)), timeout)
    except (*_BROKEN, TimeoutError) as error:
        raise UnavailableError(
            f"the dispatcher at {dispatcher_address} cannot be reached: {error}"
        ) from error
    finally:
        control.release()
    reply: m.Reply = decode_reply(data)
    if isinstance(reply, m.Failed):
        raise from_record(reply.error)
    return reply


def call_patiently(dispatcher_address: str, request: m.Request, timeout: float) -> m.Reply:
    """Call as `call` does, but wait for a dispatcher to start; warn every 10 s.

    Raises:
        UnavailableError: if no dispatcher answers within `timeout` seconds.
    """
    began = warned = time.monotonic()
    pause = 0.05
    while True:
        try:
            return call(dispatcher_address, request, timeout)
        except UnavailableError:
            now = time.monotonic()
            if now - began + pause > timeout:
                raise UnavailableError(
                    f"no dispatcher answered at {dispatcher_address} within {timeout:g} s; start "
                    "it with `stoker dispatcher`, or correct the address"
                ) from None
            if now - warned >= WARN_SECONDS:
                warned = now
                logger.warning("waiting for the dispatcher at %s", dispatcher_address)
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


async def _call(dispatcher_address: str, data: bytes) -> bytes:
    host, port = split_address(dispatcher_address)
    async with Channel(_numeric(host), port, codec=_Bytes(), config=_CONFIG) as channel:
        method: Any = UnaryUnaryMethod(channel, CALL, None, None)  # type: ignore[arg-type]
        reply: bytes = await method(data)
        return reply
