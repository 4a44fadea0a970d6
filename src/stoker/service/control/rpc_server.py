"""The dispatcher's end of the control plane: sessions and calls over gRPC.

It uses grpclib's connections and streams without its `Server`, which keeps the objects of closed
connections, reads messages of any size and accepts any number of requests of a connection.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from grpclib.protocol import AbstractHandler, Stream
from h2.events import Event, RequestReceived

from stoker.errors import StokerError, UnavailableError, WireError, to_record
from stoker.service import messages as m
from stoker.service.control.control_connection import PEER_TIMEOUT, ConnectError, WatchedProtocol
from stoker.service.control.control_loop import until_first_ends
from stoker.service.control.pending_connections import PendingConnections
from stoker.service.control.receiving import (
    HELLO_SECONDS,
    MAX_HELLO_BYTES,
    MAX_MESSAGE_BYTES,
    STALL_SECONDS,
    Receiver,
    send,
)
from stoker.service.control.rpc import BROKEN, CALL, SESSION, encode
from stoker.wire.addresses import format_address, ipv4_of_localhost

logger = logging.getLogger("stoker.rpc")

BACKLOG = 1024
"""Connections that wait to be accepted; asyncio listens again, with 100 by default."""

FAREWELL_SECONDS = 2.0

MAX_STREAMS = 8
"""Most sessions and calls of one connection at a time; stoker's peers have one."""

_CONTENT_TYPE = ("content-type", "application/grpc+msgpack")
_UNIMPLEMENTED = [("grpc-status", "12"), ("grpc-message", "Method not found")]


class SessionHandlers(Protocol):
    """Callbacks of a server, called on the loop."""

    def opened(self, peer: int, send: Callable[[bytes], None], close: Callable[[], None]) -> None:
        """Handle a new session; `send` and `close` may be called from the loop only."""

    def received(self, peer: int, data: bytes) -> None:
        """Handle a message of a session."""

    def closed(self, peer: int) -> None:
        """Handle the end of a session."""

    async def answer(self, data: bytes) -> bytes:
        """Return the reply to a call."""

    def refused(self, peer: str, reason: object, *, foreign: bool = False) -> None:
        """Handle a connection or call that ends because of what the peer at an address sent.

        A `foreign` peer has sent no message of stoker's.
        """


class _Requests(AbstractHandler):
    """Runs the requests of one connection as tasks."""

    def __init__(self, methods: Mapping[str, Callable[[Stream, str], Awaitable[None]]]) -> None:
        self._methods = methods
        self._tasks: dict[Stream, asyncio.Task[None]] = {}

    def accept(self, stream: Stream, headers: Any, release_stream: Callable[[], None]) -> None:
        task = asyncio.ensure_future(self._serve(stream, dict(headers)))
        self._tasks[stream] = task

        def ended(_: object) -> None:
            del self._tasks[stream]
            release_stream()

        task.add_done_callback(ended)

    def cancel(self, stream: Stream) -> None:
        if stream in self._tasks:
            self._tasks[stream].cancel()

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _serve(self, stream: Stream, headers: dict[str, str]) -> None:
        peer = _format_peer(stream.connection.get_peer().addr())
        begin = [(":status", "200"), _CONTENT_TYPE]
        method = self._methods.get(headers[":path"])
        try:
            if method is None or _CONTENT_TYPE not in headers.items():
                await stream.send_headers([*begin, *_UNIMPLEMENTED], end_stream=True)
                return
            await stream.send_headers(begin)
            await method(stream, peer)
            await stream.send_headers([("grpc-status", "0")], end_stream=True)
        except BaseException as error:
            # Not after a normal end: the reset could overtake the last message at the peer.
            if stream.closable:
                stream.reset_nowait()
            if not isinstance(error, Exception):
                raise
            if not stream.connection.is_closing():
                logger.exception("a request of %s failed", peer)


class ServedProtocol(WatchedProtocol):
    """A connection that is closed by any error in what its peer sends."""

    def __init__(self, server: "RpcServer") -> None:
        super().__init__(_Requests(server.methods), server.peer_timeout, client=False)
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connections.add(self)
        if self._server.is_stopped:
            self.disconnect()
        else:
            self._server.pending.opened(self.connection, self._refuse)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.connections.discard(self)
        self._server.pending.closed(self.connection)
        super().connection_lost(exc)

    def disconnect(self) -> None:
        """Close the connection."""
        self._abort(ConnectError("the server has stopped"))

    def _refuse(self, reason: object, foreign: bool = True) -> None:
        address = self._transport.get_extra_info("peername")
        self._server.handlers.refused(_format_peer(address), reason, foreign=foreign)
        self._abort(ConnectError(f"the connection broke: {reason!r}"))

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the peer.

        grpclib hides some of the errors of a peer and leaves others to asyncio, which logs them
        with a traceback.
        """
        self._silent_ticks = 0
        try:
            events = self.connection.feed(data)
            self.connection.flush()
            for event in events:
                self._check_request(event)
                self.processor.process(event)
            if not self.connection.is_closing():
                self.connection.flush()
        except Exception as error:  # noqa: BLE001 - a peer can cause any, and harms only itself
            self._refuse(error, foreign=self.connection in self._server.pending)

    def _check_request(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            if not {name for name, _ in event.headers or ()} >= {":method", ":path"}:
                raise WireError("a request without a method or a path")
            if len(self.processor.streams) >= MAX_STREAMS:
                raise WireError(f"more than {MAX_STREAMS} sessions and calls at a time")


class RpcServer:
    """A gRPC server that passes sessions and calls to `handlers`. Use on the loop only.

    Its connections notice that a peer is silent or foreign.

    Args:
        handlers: called with each session, message and call; they must not raise.
        peer_timeout: seconds without a byte of a peer after which its connection is aborted.

    Attributes:
        methods: serves the requests of a path, given a stream and the address of the peer.
        pending: closes connections without a session.
        connections: the open connections.
        is_stopped: new connections are closed.
        port: the port that is served.
    """

    def __init__(self, handlers: SessionHandlers, peer_timeout: float = PEER_TIMEOUT) -> None:
        self.handlers = handlers
        self.peer_timeout = peer_timeout
        self.methods = {SESSION: self._session, CALL: self._call}
        self.pending = PendingConnections()
        self.connections: set[ServedProtocol] = set()
        self.is_stopped = False
        self.port = 0
        self._last_peer = 0
        self._sessions: dict[asyncio.Task[Any], asyncio.Queue[bytes | None]] = {}
        self._receiver = Receiver()

    async def start(self, host: str, port: int) -> None:
        """Bind the address and serve.

        Raises:
            UnavailableError: if the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        try:
            listener = _listen(host, port)
            self._server = await loop.create_server(
                lambda: ServedProtocol(self), sock=listener, backlog=BACKLOG
            )
        except OSError as error:
            address = format_address(host, port)
            raise UnavailableError(
                f"cannot serve on {address}: {error.strerror or error}"
            ) from error
        self.port = listener.getsockname()[1]

    async def stop(self) -> None:
        """End all sessions after what was sent on them, free the port and close all connections."""
        for send_queue in self._sessions.values():
            send_queue.put_nowait(None)
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=FAREWELL_SECONDS)
        self.is_stopped = True
        self._server.close()
        # Also those that are being accepted: a peer whose call was cancelled would wait for its
        # answer.
        while self.connections:
            for connection in self.connections:
                connection.disconnect()
            await asyncio.sleep(0)
        await self._server.wait_closed()

    async def _session(self, stream: Stream, address: str) -> None:
        self._last_peer += 1
        peer = self._last_peer
        send_queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        this = asyncio.current_task()
        assert this is not None
        self._sessions[this] = send_queue
        self.handlers.opened(peer, send_queue.put_nowait, lambda: send_queue.put_nowait(None))
        receiving = self._receive_all(peer, stream, address)
        try:
            await until_first_ends(_drain(send_queue, stream), receiving)
        except Exception as error:  # noqa: BLE001 - logged; the server goes on
            logger.warning("session %d broke: %r", peer, error)
        finally:
            del self._sessions[this]
            self.handlers.closed(peer)

    async def _receive_all(self, peer: int, stream: Stream, address: str) -> None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                data = await self._receiver.receive(stream, MAX_HELLO_BYTES)
            with self.pending.session(stream.connection):
                while data is not None:
                    self.handlers.received(peer, data)
                    data = await self._receiver.receive(stream, MAX_MESSAGE_BYTES)
        except TimeoutError:
            self.handlers.refused(address, "it sent no whole message in time", foreign=True)
        except StokerError as error:
            self.handlers.refused(address, error)
        except BROKEN:
            pass

    async def _call(self, stream: Stream, address: str) -> None:
        with self.pending.call(stream.connection):
            try:
                data = await self._receiver.receive(stream, MAX_MESSAGE_BYTES, STALL_SECONDS)
            except StokerError as error:
                self.handlers.refused(address, error)
                await send(stream, encode(m.Failed(to_record(error))))
                return
            if data is not None:
                await send(stream, await self.handlers.answer(data))


async def _drain(send_queue: "asyncio.Queue[bytes | None]", stream: Stream) -> None:
    with suppress(*BROKEN):
        while (data := await send_queue.get()) is not None:
            await send(stream, data)


def _format_peer(address: tuple[str, int] | None) -> str:
    return format_address(*address[:2]) if address else "an unknown peer"


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; accepted sockets inherit its options.

    "::" and "" accept IPv4 too, where the system can; a name is bound by one address, IPv4 if it
    has one.

    Raises:
        OSError: if the address cannot be bound.
    """
    host = ipv4_of_localhost(host) or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    dual = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    listener = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    listener.setblocking(False)
    # grpclib sets it only on listeners that asyncio creates; without it the second of two small
    # messages waits 40 ms for the peer's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
