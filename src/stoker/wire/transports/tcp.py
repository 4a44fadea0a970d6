"""Messages over TCP: where the kernel allows, one `sendmsg` and two `recv_into` per frame.

Each system call re-enters the interpreter, which is expensive in a busy trainer.
So one call receives the header with the first bytes of the body, and another the rest of the body
(MSG_WAITALL).
"""

import socket
import time
from dataclasses import dataclass
from functools import partial

from stoker.elements.codec.elements import TypeResolver
from stoker.elements.codec.layout import Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire.buffers import BufferPool
from stoker.wire.frame_compressor import send_compressed
from stoker.wire.frames import MAX_HEADER_BYTES, PREFIX, Message, decode, parse_prefix
from stoker.wire.transports import (
    PEER_TIMEOUT,
    Connection,
    Listener,
    OnConnection,
    Transport,
)
from stoker.wire.transports.accepting import TcpListener, listen_on
from stoker.wire.transports.addresses import format_address
from stoker.wire.transports.receive_buffer import ReceiveBuffer
from stoker.wire.transports.stream_socket import StreamSocket, dial

MAX_BODY_BYTES = 64 << 30
"""Maximum body that a client accepts: it chose the worker it reads from."""

MAX_LISTENER_BYTES = 64 << 10
"""Maximum header, and body, that a listener accepts from any client: clients send no frames."""

POOLED_BYTES = 64 << 20
"""Maximum size of the reused receive buffers of a connection: about its bytes in flight."""

_BUFFER_BYTES = 4096


@dataclass(slots=True)
class _Arriving:
    """A message whose header was received, and its body except the `missing` end."""

    header: bytes
    body: memoryview | None
    missing: memoryview | None


class TcpConnection(Connection):
    """Connection over a connected socket, which it owns.

    Args:
        sock: blocking and connected.
        peer: for error messages.
        max_body_bytes: longer bodies are refused before memory is allocated for them.
        max_header_bytes: longer headers are refused.
        peer_timeout: see `Connection.set_peer_timeout`.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_header_bytes: int = MAX_HEADER_BYTES,
        peer_timeout: float = PEER_TIMEOUT,
    ) -> None:
        self.peer = peer
        self.types = TypeResolver()
        self._max_body_bytes = max_body_bytes
        self._max_header_bytes = max_header_bytes
        self._stream = StreamSocket(sock, peer, peer_timeout=peer_timeout)
        self._reader = ReceiveBuffer(self._stream, _BUFFER_BYTES)
        self._bodies = BufferPool(POOLED_BYTES)
        self._arriving: _Arriving | None = None

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def send(self, message: Message) -> None:
        send_compressed(message, self.compressor, self._send)

    def _send(self, buffers: list[Buffer]) -> None:
        self._stream.send_with(self._stream.send_all, buffers)

    def receive(self, timeout: float | None = None) -> Message:
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._stream.receive_with(self._receive, deadline)

    def _receive(self, deadline: float | None) -> Message:
        if self._arriving is None:
            self._arriving = self._receive_header(deadline)
        self._receive_missing(self._arriving, deadline)
        arrived, self._arriving = self._arriving, None
        return decode(
            arrived.header,
            arrived.body,
            self.types,
            max_body_bytes=self._max_body_bytes,
            allocate=self._bodies.take,
        )

    def _receive_header(self, deadline: float | None) -> _Arriving:
        """Receive prefix and header, and the first bytes of the body with them."""
        reader = self._reader
        reader.need(PREFIX.size, deadline)
        header_size, body_size = parse_prefix(
            memoryview(reader.data)[reader.start :], self._max_body_bytes
        )
        if header_size > self._max_header_bytes:
            raise WireError(
                f"a header of {header_size} bytes exceeds the {self._max_header_bytes} allowed"
            )
        reader.need(PREFIX.size + header_size, deadline)
        # Most messages have no body and need no memory.
        body = self._bodies.take(body_size) if body_size else None
        reader.consume(PREFIX.size)
        return _Arriving(reader.take(header_size), body, body)

    def _receive_missing(self, arriving: _Arriving, deadline: float | None) -> None:
        while arriving.missing:
            got = self._reader.into(arriving.missing, deadline)
            arriving.missing = arriving.missing[got:]

    def set_peer_timeout(self, seconds: float) -> None:
        self._stream.set_peer_timeout(seconds)

    def close(self) -> None:
        self._stream.close()


class TcpTransport(Transport):
    """TCP over IPv4 and IPv6; addresses are "host:port" or "[host]:port"."""

    name = "tcp"

    def listen(
        self,
        host: str,
        port: int,
        on_connection: OnConnection,
        peer_timeout: float = PEER_TIMEOUT,
    ) -> Listener:
        make = partial(_accepted, peer_timeout)
        return TcpListener(listen_on(host, port), host, make, on_connection)

    def connect(self, address: str, timeout: float) -> Connection:
        sock = dial(address, timeout)
        try:
            return TcpConnection(sock, address)
        except OSError as error:
            sock.close()
            raise UnavailableError(f"cannot connect to {address}: {error}") from error


def _accepted(peer_timeout: float, sock: socket.socket, address: tuple[str, int]) -> Connection:
    peer = format_address(*address[:2])
    return TcpConnection(sock, peer, MAX_LISTENER_BYTES, MAX_LISTENER_BYTES, peer_timeout)


TCP = TcpTransport()
