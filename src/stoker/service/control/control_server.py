"""The HTTP/2 server of the control plane, which closes the connections of foreign peers."""

import asyncio
import weakref
from typing import Any, Protocol

from grpclib.protocol import H2Protocol
from grpclib.server import Server
from h2.events import RequestReceived

from stoker.errors import WireError
from stoker.service.control.control_connection import BytesCodec, ConnectError, WatchedProtocol
from stoker.service.control.pending_connections import PendingConnections
from stoker.wire.addresses import format_address


class Refused(Protocol):
    """Callback for connections that are closed because of what their peer did."""

    def __call__(self, peer: str, reason: object, *, foreign: bool) -> None:
        """Handle a closed connection; a `foreign` peer has sent no message of stoker's."""


MAX_STREAMS = 8
"""Most sessions and calls of one connection at a time; stoker's peers have one."""


class ServedProtocol(WatchedProtocol):
    """A connection that is closed by any error in what its peer sends.

    Args:
        base: as for `WatchedProtocol`.
        peer_timeout: as for `WatchedProtocol`.
        refused: called with the peer's address and the error.
        pending: closes connections without a session.
    """

    def __init__(
        self,
        base: H2Protocol,
        peer_timeout: float,
        refused: Refused,
        pending: PendingConnections,
    ) -> None:
        super().__init__(base, peer_timeout, client=False)
        self._refused = refused
        self._pending = pending
        self._is_made = self._is_disconnected = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._is_made = True
        if self._is_disconnected:
            self.disconnect()
        else:
            self._pending.opened(self.connection, self._refuse)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._pending.closed(self.connection)
        super().connection_lost(exc)

    def disconnect(self) -> None:
        """Close the connection, if need be when it is made."""
        self._is_disconnected = True
        if self._is_made:
            self._abort(ConnectError("the server has stopped"))

    def _refuse(self, reason: str) -> None:
        self._refused(self._peer(), reason, foreign=True)
        self._abort(ConnectError(reason))

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the peer.

        grpclib hides some of the errors of a peer and leaves others to asyncio, which logs them
        with a traceback.
        """
        self._received_at = self._loop.time()
        self.answered = True
        try:
            events = self.connection.feed(data)
            self.connection.flush()
            for event in events:
                self._check_request(event)
                self.processor.process(event)
            if not self.connection.is_closing():
                self.connection.flush()
        except Exception as error:  # noqa: BLE001 - a peer can cause any, and harms only itself
            self._refused(self._peer(), error, foreign=self.connection in self._pending.used_at)
            self._abort(ConnectError(f"the connection broke: {error!r}"))

    def _peer(self) -> str:
        address = self._transport.get_extra_info("peername")
        return format_address(*address[:2]) if address else "an unknown peer"

    def _check_request(self, event: Any) -> None:
        if isinstance(event, RequestReceived):
            names = {name for name, _ in event.headers or ()}
            if not names >= {":method", ":path"}:  # grpclib would log a KeyError
                raise WireError("a request without a method or a path")
            if len(self.processor.streams) >= MAX_STREAMS:
                raise WireError(f"more than {MAX_STREAMS} sessions and calls at a time")


class ControlServer(Server):
    """A gRPC server whose connections notice that a peer is silent or foreign.

    Args:
        handlers: as grpclib's `Server` takes them.
        peer_timeout: seconds without a byte of a peer after which its connection is aborted.
        refused: called with the address of a peer, and the error in what it has sent.
        pending: closes connections without a session.
    """

    def __init__(
        self,
        handlers: list[Any],
        peer_timeout: float,
        refused: Refused,
        pending: PendingConnections,
    ) -> None:
        super().__init__(handlers, codec=BytesCodec())
        self._peer_timeout = peer_timeout
        self._refused = refused
        self._pending = pending
        self._connections: weakref.WeakSet[ServedProtocol] = weakref.WeakSet()
        self._is_stopped = False

    def disconnect_all(self) -> None:
        """Close all connections: a peer whose call was cancelled would wait for its answer.

        Also those that are being accepted.
        """
        self._is_stopped = True
        for connection in list(self._connections):
            connection.disconnect()

    def _protocol_factory(self) -> H2Protocol:
        base = super()._protocol_factory()
        served = ServedProtocol(base, self._peer_timeout, self._refused, self._pending)
        self._connections.add(served)
        if self._is_stopped:
            served.disconnect()
        return served
