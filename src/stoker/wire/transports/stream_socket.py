"""Connected socket used by several threads, closable from any of them."""

import contextlib
import logging
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar, TypeVarTuple

from stoker.elements.codec.layout import Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire.transports import PEER_TIMEOUT
from stoker.wire.transports.addresses import parse_address

_log = logging.getLogger(__name__)

_MAX_BUFFERS = 1024  # of one sendmsg: Linux's UIO_MAXIOV, macOS's IOV_MAX
_TIMEVAL = struct.Struct("@ll")
_FOR_EVER = _TIMEVAL.pack(0, 0)

_LONGEST_PEER_TIMEOUT = 3600.0
# macOS calls TCP_KEEPIDLE TCP_KEEPALIVE, and has TCP_RXT_CONNDROPTIME (in seconds, without a name
# in Python) in place of Linux's TCP_USER_TIMEOUT (in milliseconds).
_TCP_KEEPIDLE = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
_TCP_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)
_TCP_RXT_CONNDROPTIME = 0x80 if sys.platform == "darwin" else None

_Args = TypeVarTuple("_Args")
_Received = TypeVar("_Received")

Ancillary: TypeAlias = list[tuple[int, int, bytes]]


class StreamSocket:
    """Owner of a connected socket; closes its descriptor once no thread is using it.

    Args:
        sock: connected; set to blocking.
        peer: for error messages.
        on_release: called once, when the socket is closed and no thread is using it.
        peer_timeout: see `set_peer_timeout`.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        on_release: Callable[[], None] = lambda: None,
        peer_timeout: float = PEER_TIMEOUT,
    ) -> None:
        self._socket = sock
        self._peer = peer
        self._on_release = on_release
        # The last thread to leave a call on the descriptor closes it: earlier, another socket could
        # get its number during that call.
        self._lock = threading.Lock()
        self._inside = 0
        self._closed = False
        self._send_lock = threading.Lock()
        self._send_failed = ""
        self._timeval = _FOR_EVER
        configure(sock)
        set_peer_timeout(sock, peer_timeout)

    @property
    def closed(self) -> bool:
        """True once this side was closed."""
        return self._closed

    def disconnected(self, reason: str) -> UnavailableError:
        """Return the error of a connection that ended: closed by this side, or for `reason`."""
        if self._closed:
            return UnavailableError(f"the connection to {self._peer} was closed on this side")
        return UnavailableError(f"{self._peer} disconnected: {reason}")

    # Using and closing.

    def _enter(self) -> None:
        with self._lock:
            if self._closed:
                raise self.disconnected("")
            self._inside += 1

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1
            last = self._closed and not self._inside
        if last:
            self._socket.close()
            self._on_release()

    @contextlib.contextmanager
    def using(self) -> Iterator[None]:
        """Keep the descriptor valid in this context. Raises UnavailableError once closed."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def set_peer_timeout(self, seconds: float) -> None:
        """Notice an unreachable peer within `seconds`. Raises UnavailableError once closed."""
        with self.using():
            set_peer_timeout(self._socket, seconds)

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._socket.fileno()

    def close(self, final_message: Callable[[], bytes] | None = None) -> None:
        """End both directions and wake blocked threads. Idempotent, from any thread.

        Args:
            final_message: its result is sent first if no thread is sending and it does not block.
        """
        if final_message is not None and not self._closed:
            self._send_final(final_message)
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._inside += 1
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            _log.debug("%s was disconnected already: %s", self._peer, error)
        finally:
            self._leave()

    def _send_final(self, final_message: Callable[[], bytes]) -> None:
        if not self._send_lock.acquire(blocking=False):
            return
        try:
            self._enter()
            try:
                if not self._send_failed and (data := final_message()):
                    self._socket.send(data, socket.MSG_DONTWAIT)
            finally:
                self._leave()
        except OSError as error:
            _log.debug("cannot send the final message to %s: %s", self._peer, error)
        finally:
            self._send_lock.release()

    # Sending.

    def send_with(self, function: Callable[[*_Args], None], *args: *_Args) -> None:
        """Send one message by calling `function`; serializes calls from several threads.

        Raises:
            UnavailableError: if this or an earlier message could not be sent: half of it may have
                been, so nothing may follow. Messages the peer sent before can still be received.
        """
        with self._send_lock:
            self._enter()
            try:
                if self._send_failed:
                    raise UnavailableError(self._send_failed)
                function(*args)
            except BaseException as error:
                if isinstance(error, UnavailableError):
                    self._send_failed = self._send_failed or str(error)
                    raise
                lost = self.disconnected(str(error) or type(error).__name__)
                self._send_failed = self._send_failed or str(lost)
                if isinstance(error, OSError):
                    raise lost from error
                self.close()
                raise
            finally:
                self._leave()

    def writable(self) -> bool:
        """Return whether a small send would not block; True also after the connection ended."""
        poll = select.poll()  # one per call: not thread-safe
        try:
            poll.register(self._socket, select.POLLOUT)
        except ValueError:  # closed
            return True
        return bool(poll.poll(0))

    def send_all(self, buffers: list[Buffer]) -> None:
        """Send all of `buffers`, which is modified; raises OSError.

        Call it inside `using` or `send_with`.
        """
        start = 0
        while start < len(buffers):
            sent = self._socket.sendmsg(buffers[start : start + _MAX_BUFFERS])
            while start < len(buffers):
                view = memoryview(buffers[start])
                if sent < view.nbytes:
                    # The kernel accepted a part of this buffer; send the rest of it first.
                    buffers[start] = view[sent:]
                    break
                sent -= view.nbytes
                start += 1

    def send_some(self, data: Buffer) -> int:
        """Send the part of `data` that does not block; return its size. Call it inside `using`."""
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def send_descriptor(self, data: Buffer, descriptor: int) -> None:
        """Send all of `data`, and `descriptor` with its first byte. See `send_all`."""
        sent = socket.send_fds(self._socket, [data], [descriptor])
        self.send_all([memoryview(data)[sent:]])

    # Receiving.

    def receive_with(self, function: Callable[[*_Args], _Received], *args: *_Args) -> _Received:
        """Receive one message by calling `function`.

        Raises:
            UnavailableError: if this side was closed before.
            WireError: if `function` raised it for an invalid message; this side is closed.
        """
        self._enter()
        try:
            return function(*args)
        except WireError as error:
            self.close()
            raise WireError(f"{self._peer} sent what is not a message: {error}") from error
        finally:
            self._leave()

    def receive_into(self, target: memoryview, deadline: float | None, flags: int = 0) -> int:
        """Receive into `target`; return the number of bytes, at least one.

        Call it inside `using` or `receive_with`.

        Raises:
            TimeoutError: if nothing arrived before `deadline`, in `time.monotonic` seconds.
            UnavailableError: if the peer or this side ended the connection.
        """
        try:
            self._set_timeout(deadline)
            got = self._socket.recv_into(target, 0, flags)
        except OSError as error:
            raise self._receive_failed(error) from error
        if not got:
            raise self.disconnected("it closed the connection")
        return got

    def receive_ancillary(
        self, target: memoryview, deadline: float | None, room: int, flags: int
    ) -> tuple[int, Ancillary, int]:
        """Receive like `receive_into`, plus at most `room` bytes of ancillary data, and flags."""
        try:
            self._set_timeout(deadline)
            got, ancillary, flags, _ = self._socket.recvmsg_into([target], room, flags)
        except OSError as error:
            raise self._receive_failed(error) from error
        if not got:
            raise self.disconnected("it closed the connection")
        return got, ancillary, flags

    def _receive_failed(self, error: OSError) -> Exception:
        if isinstance(error, BlockingIOError):
            return TimeoutError(f"{self._peer} sent no whole message in time")
        return self.disconnected(str(error))

    def _set_timeout(self, deadline: float | None) -> None:
        # Use the kernel's timeout: with Python's the socket would be non-blocking, and MSG_WAITALL
        # ignored.
        timeval = _FOR_EVER
        if deadline is not None:
            micros = max(int((deadline - time.monotonic()) * 1e6), 1)
            timeval = _TIMEVAL.pack(*divmod(micros, 1_000_000))
        if timeval != self._timeval:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
            self._timeval = timeval


def configure(sock: socket.socket) -> None:
    """Make `sock` blocking; on a TCP socket also disable Nagle's delay."""
    sock.setblocking(True)
    if _is_tcp(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def set_peer_timeout(sock: socket.socket, seconds: float) -> None:
    """Make the kernel end a TCP connection within `seconds` after its peer became unreachable.

    Two timers, since keep-alive does not run while data is unacknowledged: each gets half of the
    time, because one may start just before the other ends. The kernel counts a peer that accepts
    no data (its receive window is zero) as unreachable, too. Keep-alive counts whole seconds, so
    an idle connection takes 2 s at least. Other sockets are left as they are: their peers are on
    this host, where the kernel ends the connection with the process.
    """
    if not _is_tcp(sock):
        return
    seconds = min(max(seconds, 1.0), _LONGEST_PEER_TIMEOUT)
    idle, interval = max(1, int(seconds / 2)), max(1, int(seconds / 10))
    probes = max(1, int(seconds - idle) // interval)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (_TCP_KEEPIDLE, idle),
        (socket.TCP_KEEPINTVL, interval),
        (socket.TCP_KEEPCNT, probes),
        (_TCP_USER_TIMEOUT, int(seconds * 500)),  # in ms
        (_TCP_RXT_CONNDROPTIME, idle),
    ):
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _is_tcp(sock: socket.socket) -> bool:
    return sock.family in (socket.AF_INET, socket.AF_INET6)


def dial(address: str, timeout: float) -> socket.socket:
    """Return a socket connected to "host:port".

    Raises:
        UnavailableError: if nothing listens at `address`.
        InvalidArgumentError: if `address` is not "host:port".
    """
    try:
        sock = socket.create_connection(parse_address(address), max(timeout, 1e-3))
        try:
            itself = sock.getsockname() == sock.getpeername()
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise UnavailableError(f"cannot connect to {address}: {error}") from error
    if itself:
        # The kernel gave this socket the target port and connected it to itself.
        sock.close()
        raise UnavailableError(f"cannot connect to {address}: no server listens there")
    return sock
