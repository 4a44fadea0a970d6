"""Messages over TCP sockets: where the kernel allows, one `sendmsg` and two `recv_into` a frame.

Interpreter entries are what a busy trainer cannot afford (DESIGN.md par. 2), so a header arrives
together with the first bytes of its body and the rest of the body in one call (MSG_WAITALL).
"""

import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator

from stoker.dataset.codec.elements import TypeResolver
from stoker.dataset.codec.layout import Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire.buffers import BufferPool
from stoker.wire.frames import MAX_HEADER_BYTES, PREFIX, Message, decode, encode, parse_prefix
from stoker.wire.transports import Connection, Listener, OnConnection, Transport
from stoker.wire.transports.accepting import TcpListener, listen_on
from stoker.wire.transports.addresses import format_address, parse_address

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 << 30
"""What a client accepts from the worker it has chosen to read from."""

MAX_LISTENER_BYTES = 1 << 20
"""What a listener accepts, as header and as body, from whoever connects: clients send no frames."""

POOLED_BYTES = 64 << 20
"""Of received bodies a connection uses so many bytes again: about what is under way on it."""

_READ_AHEAD = 4096
_MAX_BUFFERS = 1024  # of one sendmsg: Linux's UIO_MAXIOV, macOS's IOV_MAX
_TIMEVAL = struct.Struct("@ll")
_FOR_EVER = _TIMEVAL.pack(0, 0)


class TcpConnection(Connection):
    """A connected socket, which it owns.

    Args:
        sock: blocking and connected.
        peer: for error messages.
        max_body_bytes: longer bodies are refused before memory is allocated for them.
        max_header_bytes: the same for headers.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_header_bytes: int = MAX_HEADER_BYTES,
    ) -> None:
        self.peer = peer
        self.types = TypeResolver()
        self._socket = sock
        self._max_body_bytes = max_body_bytes
        self._max_header_bytes = max_header_bytes
        self._send_lock = threading.Lock()
        self._send_failed = ""
        # The last thread to leave a call on the descriptor closes it: before, its number could be
        # given to another socket under that call.
        self._state_lock = threading.Lock()
        self._inside = 0
        self._closed = False
        self._head = bytearray(_READ_AHEAD)
        self._head_have = 0
        self._header = b""
        self._bodies = BufferPool(POOLED_BYTES)
        self._body: memoryview | None = None
        self._body_have = 0
        self._timeval = _FOR_EVER
        _configure(sock)

    @property
    def closed(self) -> bool:
        return self._closed

    def send(self, message: Message) -> None:
        buffers = encode(message)
        with self._send_lock, self._using():
            if self._send_failed:
                raise UnavailableError(self._send_failed)
            try:
                _send_all(self._socket, buffers)
            except BaseException as error:
                # Half a message may be out: nothing may follow it. What the peer said before it
                # went can still be received.
                gone = self._gone(str(error) or type(error).__name__)
                self._send_failed = str(gone)
                if isinstance(error, OSError):
                    raise gone from error
                self.close()
                raise

    def receive(self, timeout: float | None = None) -> Message:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._using():
            try:
                if self._body is None:
                    self._receive_header(deadline)
                self._receive_body(deadline)
                header, body, self._body = self._header, self._body, None
                return decode(header, body, self.types)
            except WireError as error:
                self.close()
                raise WireError(f"{self.peer} sent what is not a message: {error}") from error

    def _receive_header(self, deadline: float | None) -> None:
        """Receive prefix and header, and the first bytes of the body with them."""
        self._receive_head(PREFIX.size, deadline)
        header_size, body_size = parse_prefix(self._head, self._max_body_bytes)
        if header_size > self._max_header_bytes:
            raise WireError(
                f"a header of {header_size} bytes, more than the {self._max_header_bytes} allowed"
            )
        end = PREFIX.size + header_size
        self._receive_head(end, deadline)
        early = min(self._head_have - end, body_size)
        body = self._bodies.take(body_size)
        body[:early] = memoryview(self._head)[end : end + early]
        self._header = bytes(self._head[PREFIX.size : end])
        self._body, self._body_have = body, early
        rest = self._head[end + early : self._head_have]
        if len(self._head) > _READ_AHEAD >= len(rest):
            self._head = bytearray(_READ_AHEAD)
        self._head[: len(rest)] = rest
        self._head_have = len(rest)

    def _receive_head(self, size: int, deadline: float | None) -> None:
        while self._head_have < size:
            if self._head_have == len(self._head):
                # Grows with what arrives, not to what was announced; into new memory, because a
                # traceback may hold a view of the old.
                self._head = self._head + bytes(min(size - len(self._head), len(self._head)))
            target = memoryview(self._head)[self._head_have :]
            self._head_have += self._receive_into(target, deadline, 0)

    def _receive_body(self, deadline: float | None) -> None:
        assert self._body is not None
        while self._body_have < len(self._body):
            target = self._body[self._body_have :]
            self._body_have += self._receive_into(target, deadline, socket.MSG_WAITALL)

    def _receive_into(self, target: memoryview, deadline: float | None, flags: int) -> int:
        try:
            self._set_timeout(deadline)
            got = self._socket.recv_into(target, 0, flags)
        except BlockingIOError as error:
            raise TimeoutError(f"{self.peer} sent no whole message in time") from error
        except OSError as error:
            raise self._gone(str(error)) from error
        if not got:
            raise self._gone("it closed the connection")
        return got

    def _set_timeout(self, deadline: float | None) -> None:
        # In the kernel: with a timeout of Python's the socket would be non-blocking, for which
        # MSG_WAITALL does not wait.
        timeval = _FOR_EVER
        if deadline is not None:
            micros = max(int((deadline - time.monotonic()) * 1e6), 1)
            timeval = _TIMEVAL.pack(*divmod(micros, 1_000_000))
        if timeval != self._timeval:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
            self._timeval = timeval

    def _gone(self, reason: str) -> UnavailableError:
        if self._closed:
            return UnavailableError(f"the connection to {self.peer} was closed on this side")
        return UnavailableError(f"{self.peer} is gone: {reason}")

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        with self._state_lock:
            if self._closed:
                raise self._gone("")
            self._inside += 1
        try:
            yield
        finally:
            with self._state_lock:
                self._inside -= 1
                if self._closed and not self._inside:
                    self._socket.close()

    def close(self) -> None:
        with self._state_lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                _log.debug("%s was disconnected already: %s", self.peer, error)
            if not self._inside:
                self._socket.close()


def _configure(sock: socket.socket) -> None:
    sock.setblocking(True)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A host that vanished is noticed after 10 + 4 * 5 seconds. macOS calls the 10 TCP_KEEPALIVE.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
    for option, value in ((idle, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4)):
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _send_all(sock: socket.socket, buffers: list[Buffer]) -> None:
    start = 0
    while start < len(buffers):
        sent = sock.sendmsg(buffers[start : start + _MAX_BUFFERS])
        while sent:
            view = memoryview(buffers[start])
            if sent < view.nbytes:
                # The kernel took a part of this one; what is left of it goes first.
                buffers[start] = view[sent:]
                break
            sent -= view.nbytes
            start += 1


class TcpTransport(Transport):
    """TCP over IPv4 and IPv6; addresses are "host:port" or "[host]:port"."""

    name = "tcp"

    def listen(self, host: str, port: int, on_connection: OnConnection) -> Listener:
        return TcpListener(listen_on(host, port), host, _accepted, on_connection)

    def connect(self, address: str, timeout: float) -> Connection:
        host, port = parse_address(address)
        try:
            sock = socket.create_connection((host, port), max(timeout, 1e-3))
        except OSError as error:
            raise UnavailableError(f"cannot connect to {address}: {error}") from error
        try:
            if sock.getsockname() == sock.getpeername():
                # The kernel gave this socket the port it looked for, and connected it to itself.
                raise UnavailableError(f"cannot connect to {address}: nobody listens there")
            return TcpConnection(sock, address)
        except OSError as error:
            sock.close()
            if isinstance(error, UnavailableError):
                raise
            raise UnavailableError(f"cannot connect to {address}: {error}") from error


def _accepted(sock: socket.socket, address: tuple[str, int]) -> Connection:
    peer = format_address(*address[:2])
    return TcpConnection(sock, peer, MAX_LISTENER_BYTES, MAX_LISTENER_BYTES)


TCP = TcpTransport()
