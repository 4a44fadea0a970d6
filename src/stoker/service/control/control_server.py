"""The HTTP/2 server of the control plane, which closes the connections of foreign peers.

It uses grpclib's connections and streams without its `Server`, which keeps the objects of closed
connections, reads messages of any size and accepts any number of requests of a connection.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from grpclib.protocol import AbstractHandler, Stream
from h2.events import Event, RequestReceived

from stoker.errors import WireError
from stoker.service.control.control_connection import BACKLOG, ConnectError, WatchedProtocol
from stoker.service.control.pending_connections import PendingConnections
from stoker.wire.addresses import format_address

logger = logging.getLogger("stoker.rpc")

MAX_STREAMS = 8
"""Most sessions and calls of one connection at a time; stoker's peers have one."""

_CONTENT_TYPE = ("content-type", "application/grpc+msgpack")
_UNIMPLEMENTED = [("grpc-status", "12"), ("grpc-message", "Method not found")]

Method = Callable[[Stream, str], Awaitable[None]]
"""Serves a request, given its stream and the address of the peer."""


class Refused(Protocol):
    """Callback for connections that are closed because of what their peer did."""

    def __call__(self, peer: str, reason: object, *, foreign: bool) -> None:
        """Handle a closed connection; a `foreign` peer has sent no message of stoker's."""


class _Requests(AbstractHandler):
    """Runs the requests of one connection as tasks."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = methods
        self._tasks: dict[Stream, asyncio.Task[None]] = {}

    def accept(self, stream: Stream, headers: Any, release_stream: Callable[[], None]) -> None:
        peer = _format_peer(stream.connection.get_peer().addr())
        task = asyncio.ensure_future(self._serve(stream, dict(headers), peer))
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

    async def _serve(self, stream: Stream, headers: dict[str, str], peer: str) -> None:
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

    def __init__(self, server: "ControlServer") -> None:
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
        self._server.refused(_format_peer(address), reason, foreign=foreign)
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
            self._refuse(error, foreign=self.connection in self._server.pending.used_at)

    def _check_request(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            if not {name for name, _ in event.headers or ()} >= {":method", ":path"}:
                raise WireError("a request without a method or a path")
            if len(self.processor.streams) >= MAX_STREAMS:
                raise WireError(f"more than {MAX_STREAMS} sessions and calls at a time")


class ControlServer:
    """A gRPC server whose connections notice that a peer is silent or foreign.

    Args:
        methods: serves the requests of a path.
        peer_timeout: seconds without a byte of a peer after which its connection is aborted.
        refused: called with the address of a peer, and the error in what it has sent.
        pending: closes connections without a session.

    Attributes:
        connections: the open connections.
        is_stopped: new connections are closed.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        peer_timeout: float,
        refused: Refused,
        pending: PendingConnections,
    ) -> None:
        self.methods = methods
        self.peer_timeout = peer_timeout
        self.refused = refused
        self.pending = pending
        self.connections: set[ServedProtocol] = set()
        self.is_stopped = False

    async def start(self, listener: socket.socket) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ServedProtocol(self), sock=listener, backlog=BACKLOG
        )

    async def stop(self) -> None:
        """Free the port, cancel all requests and close all connections.

        Also those that are being accepted: a peer whose call was cancelled would wait for its
        answer.
        """
        self.is_stopped = True
        self._server.close()
        while self.connections:
            for connection in self.connections:
                connection.disconnect()
            await asyncio.sleep(0)
        await self._server.wait_closed()


def _format_peer(address: tuple[str, int] | None) -> str:
    return format_address(*address[:2]) if address else "an unknown peer"
