"""A connected socket that several threads use and any may close."""

import contextlib
import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar, TypeVarTuple

from stoker.elements.codec.layout import Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire.transports.addresses import parse_address

_log = logging.getLogger(__name__)

_MAX_BUFFERS = 1024  # of one sendmsg: Linux's UIO_MAXIOV, macOS's IOV_MAX
_TIMEVAL = struct.Struct("@ll")
_FOR_EVER = _TIMEVAL.pack(0, 0)

_Args = TypeVarTuple("_Args")
_Received = TypeVar("_Received")

Ancillary: TypeAlias = list[tuple[int, int, bytes]]


class StreamSocket:
    """Owns `sock`, which is connected; its descriptor is closed when no thread is using it.

    Args:
        sock: becomes blocking.
        peer: for error messages.
        on_release: called once, when it is closed and no thread is using it.
    """

    def __init__(
        self, sock: socket.socket, peer: str, on_release: Callable[[], None] = lambda: None
    ) -> None:
        self._socket = sock
        self._peer = peer
        self._on_release = on_release
        # The last thread to leave a call on the descriptor closes it: before, its number could be
        # given to another socket under that call.
        self._lock = threading.Lock()
        self._inside = 0
        self._closed = False
        self._send_lock = threading.Lock()
        self._send_failed = ""
        self._timeval = _FOR_EVER
        configure(sock)

    @property
    def closed(self) -> bool:
        """Whether this side was closed."""
        return self._closed

    def gone(self, reason: str) -> UnavailableError:
        """The error of a connection that has ended: by this side, or for `reason`."""
        if self._closed:
            return UnavailableError(f"the connection to {self._peer} was closed on this side")
        return UnavailableError(f"{self._peer} is gone: {reason}")

    # Using and closing.

    def _enter(self) -> None:
        with self._lock:
            if self._closed:
                raise self.gone("")
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
        """The descriptor stays valid in this context. Raises UnavailableError once closed."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def fileno(self) -> int:
        """The descriptor, for `select`."""
        return self._socket.fileno()

    def close(self, last_words: Callable[[], bytes] | None = None) -> None:
        """End both directions and wake whoever is blocked. Idempotent, from any thread.

        Args:
            last_words: sent before if no thread is sending and the kernel takes them at once.
        """
        if last_words is not None and not self._closed:
            self._say(last_words)
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

    def _say(self, last_words: Callable[[], bytes]) -> None:
        if not self._send_lock.acquire(blocking=False):
            return
        try:
            self._enter()
            try:
                if not self._send_failed and (words := last_words()):
                    self._socket.send(words, socket.MSG_DONTWAIT)
            finally:
                self._leave()
        except OSError as error:
            _log.debug("%s hears no last words: %s", self._peer, error)
        finally:
            self._send_lock.release()

    # Sending.

    def send_by(self, function: Callable[[*_Args], None], *args: *_Args) -> None:
        """Send one message by a call of `function`; by one thread at a time.

        Raises:
            UnavailableError: it cannot be sent, or one before it could not: half of that may be
                out, so nothing may follow. What the peer said before it went can still be received.
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
                gone = self.gone(str(error) or type(error).__name__)
                self._send_failed = self._send_failed or str(gone)
                if isinstance(error, OSError):
                    raise gone from error
                self.close()
                raise
            finally:
                self._leave()

    def takes_more(self) -> bool:
        """Whether the kernel has room for a little more to send; True also when all is over."""
        poll = select.poll()  # one a call: two threads may not use the same
        try:
            poll.register(self._socket, select.POLLOUT)
        except ValueError:  # closed
            return True
        return bool(poll.poll(0))

    def send_all(self, buffers: list[Buffer]) -> None:
        """Send all of `buffers`, which is changed; OSError when it cannot.

        Inside `using` or `send_by`.
        """
        start = 0
        while start < len(buffers):
            sent = self._socket.sendmsg(buffers[start : start + _MAX_BUFFERS])
            while start < len(buffers):
                view = memoryview(buffers[start])
                if sent < view.nbytes:
                    # The kernel took a part of this one; what is left of it goes first.
                    buffers[start] = view[sent:]
                    break
                sent -= view.nbytes
                start += 1

    def send_some(self, data: Buffer) -> int:
        """Send what the kernel takes of `data` without waiting; how much. Inside `using`."""
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def send_descriptor(self, data: Buffer, descriptor: int) -> None:
        """Send all of `data`, and `descriptor` with its first byte. As `send_all`."""
        sent = socket.send_fds(self._socket, [data], [descriptor])
        self.send_all([memoryview(data)[sent:]])

    # Receiving.

    def receive_by(self, function: Callable[[*_Args], _Received], *args: *_Args) -> _Received:
        """Receive one message by a call of `function`.

        Raises:
            UnavailableError: this side was closed before.
            WireError: `function` raised it, because what came is no message; this side is closed.
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
        """Fill `target`, or a beginning of it; how much. Inside `using` or `receive_by`.

        Raises:
            TimeoutError: nothing came until `deadline`, of `time.monotonic`.
            UnavailableError: the peer has ended the connection, or this side has.
        """
        try:
            self._set_timeout(deadline)
            got = self._socket.recv_into(target, 0, flags)
        except OSError as error:
            raise self._receive_failed(error) from error
        if not got:
            raise self.gone("it closed the connection")
        return got

    def receive_ancillary(
        self, target: memoryview, deadline: float | None, room: int, flags: int
    ) -> tuple[int, Ancillary, int]:
        """As `receive_into`, with at most `room` bytes that came beside; and the flags of both."""
        try:
            self._set_timeout(deadline)
            got, ancillary, flags, _ = self._socket.recvmsg_into([target], room, flags)
        except OSError as error:
            raise self._receive_failed(error) from error
        if not got:
            raise self.gone("it closed the connection")
        return got, ancillary, flags

    def _receive_failed(self, error: OSError) -> Exception:
        if isinstance(error, BlockingIOError):
            return TimeoutError(f"{self._peer} sent no whole message in time")
        return self.gone(str(error))

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


def configure(sock: socket.socket) -> None:
    """Blocking, without delay, and with keep-alive where it is a TCP socket."""
    sock.setblocking(True)
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A host that vanished is noticed after 10 + 4 * 5 seconds. macOS calls the 10 TCP_KEEPALIVE.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
    for option, value in ((idle, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4)):
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def dial(address: str, timeout: float) -> socket.socket:
    """A socket connected to "host:port".

    Raises:
        UnavailableError: nobody listens there.
        InvalidArgumentError: it is not an address.
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
        # The kernel gave this socket the port it looked for, and connected it to itself.
        sock.close()
        raise UnavailableError(f"cannot connect to {address}: nobody listens there")
    return sock
