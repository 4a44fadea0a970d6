"""Messages over TCP: where the kernel allows, one `sendmsg` and two `recv_into` per frame.

Each system call re-enters the interpreter, which is expensive in a busy trainer.
So one call receives the header with the first bytes of the body, and another the rest of the body
(MSG_WAITALL, for some milliseconds).
"""

import socket
from dataclasses import dataclass
from functools import partial

from stoker.elements.codec.layout import Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire.addresses import format_address
from stoker.wire.buffers import BufferPool
from stoker.wire.frames import MAX_HEADER_BYTES, PREFIX, Message, decode, encode, parse_prefix
from stoker.wire.transports import (
    PEER_TIMEOUT,
    Connection,
    Listener,
    ListenOptions,
    Transport,
)
from stoker.wire.transports.accepting import SocketListener, listen_on
from stoker.wire.transports.poller import Poller, Ready
from stoker.wire.transports.receive_buffer import ReceiveBuffer
from stoker.wire.transports.stream_socket import StreamSocket, dial

MAX_BODY_BYTES = 64 << 30
"""Maximum body that a client accepts: the client chose the worker."""

MAX_LISTENER_BYTES = 64 << 10
"""Maximum header, and body, that a listener accepts from any client: clients send no frames."""

POOLED_BYTES = 64 << 20
"""Maximum size of the reused receive buffers of a connection: about its bytes in flight."""

_BUFFER_BYTES = 4096


@dataclass(slots=True)
class _Arriving:
    """A message whose header was received, and its body except the `missing` end."""

    header: Buffer
    body: memoryview
    missing: memoryview


class TcpConnection(Connection):
    """Connection over a connected socket, closed with the connection.

    Args:
        sock: connected.
        peer: for error messages.
        max_body_bytes: longer bodies are refused before memory is allocated.
        max_header_bytes: longer headers are refused.
        peer_timeout: see `Connection.set_peer_timeout`.
        wait: receiving may wait a little for the rest of a body.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_header_bytes: int = MAX_HEADER_BYTES,
        peer_timeout: float = PEER_TIMEOUT,
        *,
        wait: bool = True,
    ) -> None:
        super().__init__(peer)
        self._max_body_bytes = max_body_bytes
        self._max_header_bytes = max_header_bytes
        self._stream = StreamSocket(sock, peer, peer_timeout=peer_timeout)
        self._reader = ReceiveBuffer(self._stream, _BUFFER_BYTES, wait=wait)
        self._bodies = BufferPool(POOLED_BYTES)
        self._arriving: _Arriving | None = None

    @property
    def closed(self) -> bool:
        return self._stream.closed

    @property
    def has_ahead(self) -> bool:
        return self._reader.ahead > 0

    def send_now(self, message: Message) -> bool:
        compressor = self.compressor
        pack = None if compressor is None else compressor.compress
        return self._sent(self._stream.send([*encode(message, pack)]))

    def flush(self) -> bool:
        return self._sent(self._stream.flush())

    def _sent(self, all_of_it: bool) -> bool:
        if all_of_it and self.compressor is not None:
            self.compressor.sent()
        return all_of_it

    def receive_now(self) -> Message | None:
        return self._stream.receive_with(self._receive, self.close)

    def _receive(self) -> Message | None:
        arriving = self._arriving
        if arriving is None:
            reader = self._reader
            if not reader.need(PREFIX.size):
                return None
            header_size, body_size = self._sizes()
            if not reader.need(PREFIX.size + header_size):
                return None
            reader.consume(PREFIX.size)
            header = reader.take(header_size)
            if body_size <= reader.ahead:  # most messages are small
                return self._decode(header, memoryview(reader.take(body_size)))
            # Reused memory: fresh pages made an image cost 121 us of CPU instead of 54.
            # (docs/decisions/031)
            body = self._bodies.take(body_size)
            arriving = _Arriving(header, body, body)
        arriving.missing = self._reader.into(arriving.missing)
        if arriving.missing:
            self._arriving = arriving
            return None
        self._arriving = None
        return self._decode(arriving.header, arriving.body)

    def _decode(self, header: Buffer, body: memoryview) -> Message:
        return decode(
            header,
            body or None,
            self.types,
            max_body_bytes=self._max_body_bytes,
            allocate=self._bodies.take,
        )

    def _sizes(self) -> tuple[int, int]:
        """Return the sizes of the header and the body, from the prefix."""
        reader = self._reader
        header_size, body_size = parse_prefix(reader.data, self._max_body_bytes, reader.start)
        # Before memory is allocated: the peer may not be a client of stoker.
        if header_size > self._max_header_bytes:
            raise WireError(
                f"a header of {header_size} bytes exceeds the {self._max_header_bytes} allowed"
            )
        return header_size, body_size

    def watch(self, poller: Poller, ready: Ready, *, writable: bool) -> None:
        # The poller reports new bytes, so the next `need` asks the kernel again.
        self._reader.drained = False
        self._stream.watch(poller, ready, writable=writable)

    def wait(self, deadline: float | None, *, writable: bool) -> None:
        self._stream.wait(deadline, writable=writable)

    def set_peer_timeout(self, seconds: float) -> None:
        self._stream.set_peer_timeout(seconds)

    def close(self) -> None:
        self._stream.close()


class TcpTransport(Transport):
    """TCP over IPv4 and IPv6; addresses are "host:port" or "[host]:port"."""

    name = "tcp"

    def _listen(self, host: str, port: int, options: ListenOptions) -> Listener:
        sockets = listen_on(host, port)
        address = format_address(host, sockets[0].getsockname()[1])
        return SocketListener(sockets, address, partial(_accepted, options.peer_timeout), options)

    def connect(self, address: str, timeout: float) -> Connection:
        sock = dial(address, timeout)
        try:
            return TcpConnection(sock, address)
        except OSError as error:
            sock.close()
            raise UnavailableError(f"cannot connect to {address}: {error}") from error


def _accepted(peer_timeout: float, sock: socket.socket, address: tuple[str, int]) -> Connection:
    peer = format_address(*address[:2])
    # Clients send no frames, so a listener allocates little for a stranger.
    limit = MAX_LISTENER_BYTES
    return TcpConnection(sock, peer, limit, limit, peer_timeout, wait=False)


TCP = TcpTransport()
