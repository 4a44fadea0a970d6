"""Connected socket that is used without waiting, and closable from any thread."""

import logging
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from stoker.elements.codec.layout import Buffer
from stoker.errors import UnavailableError, WireError
from stoker.wire.addresses import parse_address
from stoker.wire.transports import PEER_TIMEOUT, forking
from stoker.wire.transports.poller import Poller, Ready

_log = logging.getLogger(__name__)

_MAX_BUFFERS = 1024  # of one sendmsg: Linux's UIO_MAXIOV, macOS's IOV_MAX

BODY_SECONDS = 0.01
"""Most seconds that receiving waits for the rest of a body: a slow peer delays peers no longer.

Waiting in the kernel copies the bytes as they arrive, while they are in the processor's cache, and
enters the interpreter once.
"""

_BODY_TIMEVAL = struct.pack("@ll", 0, int(BODY_SECONDS * 1e6))

_MOST_AT_ONCE = 1 << 20  # bytes of a slow body that wake a poller

_LONGEST_PEER_TIMEOUT = 3600.0
# macOS calls TCP_KEEPIDLE TCP_KEEPALIVE, and has TCP_RXT_CONNDROPTIME (in seconds, without a name
# in Python) in place of Linux's TCP_USER_TIMEOUT (in milliseconds).
# The kernel notices an unreachable peer: a timer of messages would fire when a process is only
# busy. (docs/decisions/017)
_TCP_KEEPIDLE = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
_TCP_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)
_TCP_RXT_CONNDROPTIME = 0x80 if sys.platform == "darwin" else None

_Received = TypeVar("_Received")

Ancillary: TypeAlias = list[tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True)
class WithDescriptor:
    """Bytes, sent with a descriptor, which `owner` keeps open until the first byte is sent."""

    data: bytes
    descriptor: int
    owner: object


class StreamSocket:
    """Owner of a connected socket; closes the descriptor once no thread is using the socket.

    As a context manager, this object keeps the descriptor valid; entering raises UnavailableError
    once closed.

    Args:
        sock: connected; set to blocking, but only `wait` waits, and `receive_into` if requested.
        peer: for error messages.
        on_release: called once, when the socket is closed and no longer in use.
        peer_timeout: see `set_peer_timeout`.

    Attributes:
        end_reason: reason of the peer's end, if the owner knows more than the socket.
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
        self.end_reason = ""
        # The last thread to leave a call on the descriptor closes the descriptor: earlier, another
        # socket could get its number during that call.
        self._lock = threading.Lock()
        self._inside = 0
        self._closed = False
        self._poller: Poller | None = None
        self._unsent: list[Buffer | WithDescriptor] = []
        self._send_failed = ""
        self._least = 1  # bytes that wake a poller
        configure(sock)
        set_peer_timeout(sock, peer_timeout)
        forking.close_in_child(sock)

    @property
    def closed(self) -> bool:
        """True once this side was closed."""
        return self._closed

    def disconnected(self, reason: str) -> UnavailableError:
        """Return the error of a connection that ended: closed by this side, or for `reason`."""
        if self._closed:
            return UnavailableError(f"the connection to {self._peer} was closed on this side")
        return UnavailableError(f"{self._peer} disconnected: {self.end_reason or reason}")

    # Using and closing.

    def __enter__(self) -> None:
        with self._lock:
            if self._closed:
                raise self.disconnected("")
            self._inside += 1

    def __exit__(self, kind: object = None, error: object = None, trace: object = None) -> None:
        with self._lock:
            self._inside -= 1
            last = self._closed and not self._inside
        if last:
            if self._poller is not None:
                self._poller.forget(self._socket.fileno())
            self._socket.close()
            self._on_release()

    def set_peer_timeout(self, seconds: float) -> None:
        """Notice an unreachable peer within `seconds`. Raises UnavailableError once closed."""
        with self:
            set_peer_timeout(self._socket, seconds)

    def watch(self, poller: Poller, ready: Ready, *, writable: bool) -> None:
        """See `Connection.watch`."""
        with self:
            self._poller = poller
            try:
                poller.watch(self._socket.fileno(), ready, writable=writable)
            except OSError as error:  # the user's limit of watched descriptors
                raise self.disconnected(f"it cannot be watched: {error}") from error

    def wait(self, deadline: float | None, *, writable: bool) -> None:
        """See `Connection.wait`."""
        waiting = select.poll()
        with self:
            waiting.register(self._socket, select.POLLOUT if writable else select.POLLIN)
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            if not waiting.poll(left):
                raise TimeoutError(f"{self._peer} sent no whole message in time")

    def close(self, final_message: Callable[[], bytes] | None = None) -> None:
        """End both directions and wake blocked threads. Idempotent, from any thread.

        Args:
            final_message: the result is sent first if no message is half sent and sending does not
                block.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._inside += 1
        try:
            if final_message is not None and not (self._unsent or self._send_failed):
                self._send_final(final_message)
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            _log.debug("%s was disconnected already: %s", self._peer, error)
        finally:
            self.__exit__()

    def _send_final(self, final_message: Callable[[], bytes]) -> None:
        try:
            if data := final_message():
                self._socket.send(data, socket.MSG_DONTWAIT)
        except OSError as error:
            _log.debug("cannot send the final message to %s: %s", self._peer, error)

    # Sending.

    def send(self, buffers: list[Buffer | WithDescriptor]) -> bool:
        """Begin to send `buffers`, which are one message; return whether the message was sent.

        The list is modified. If not all were sent, `flush` continues.

        Raises:
            UnavailableError: if this or an earlier message could not be sent: half of it may have
                been, so nothing may follow. Messages the peer sent before can still be received.
        """
        assert not self._unsent
        self._unsent = buffers
        return self.flush()

    def flush(self) -> bool:
        """Send more of the message; see `send`."""
        with self:
            try:
                if self._send_failed:
                    raise UnavailableError(self._send_failed)
                return self._flush()
            except BlockingIOError:
                return False
            except OSError as error:
                lost = self.disconnected(str(error))
                self._unsent, self._send_failed = [], str(lost)
                try:
                    raise lost from error
                finally:
                    del lost  # its traceback refers to this frame, which would keep the message

    def _flush(self) -> bool:
        unsent = self._unsent
        while unsent:
            first = unsent[0]
            if isinstance(first, WithDescriptor):
                sent = socket.send_fds(
                    self._socket, [first.data], [first.descriptor], socket.MSG_DONTWAIT
                )
                unsent[0] = memoryview(first.data)[sent:]
            else:
                # Elements are sent over plain sockets: gRPC from Python is 3 to 10 times slower.
                # (docs/decisions/016)
                _drop(unsent, self._socket.sendmsg(self._plain(), (), socket.MSG_DONTWAIT))
        return True

    def _plain(self) -> list[Buffer]:
        """Return the first unsent buffers, up to a buffer with a descriptor."""
        found: list[Buffer] = []
        for buffer in self._unsent[:_MAX_BUFFERS]:
            if isinstance(buffer, WithDescriptor):
                break
            found.append(buffer)
        return found

    # Receiving.

    def receive_with(
        self, receive: Callable[[], _Received], close: Callable[[], None]
    ) -> _Received:
        """Return what `receive` returns, which keeps the descriptor valid.

        Args:
            receive: receives a message, or a part.
            close: closes the connection after an invalid message.

        Raises:
            UnavailableError: if this side was closed before.
            WireError: if `receive` raised it for an invalid message.
        """
        with self:
            try:
                return receive()
            except WireError as error:
                close()
                raise WireError(f"{self._peer} sent what is not a message: {error}") from error

    def receive_into(self, target: memoryview, flags: int = socket.MSG_DONTWAIT) -> int:
        """Receive into `target`; return the number of bytes, 0 if none has arrived.

        With MSG_WAITALL as `flags` wait for all bytes, at most `BODY_SECONDS`. Call this method
        in a context of this object.

        Raises:
            UnavailableError: if the peer or this side ended the connection.
        """
        try:
            got = self._socket.recv_into(target, 0, flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self.disconnected(str(error)) from error
        if not got:
            raise self.disconnected("it closed the connection")
        return got

    def receive_ancillary(
        self, target: memoryview, room: int, flags: int
    ) -> tuple[int, Ancillary, int]:
        """Receive like `receive_into`, plus at most `room` bytes of ancillary data, and flags."""
        try:
            got, ancillary, flags, _ = self._socket.recvmsg_into(
                [target], room, flags | socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return 0, [], 0
        except OSError as error:
            raise self.disconnected(str(error)) from error
        if not got:
            raise self.disconnected("it closed the connection")
        return got, ancillary, flags

    def expect(self, size: int) -> None:
        """Let a poller wait until `size` bytes have arrived, or a part that is worth a call.

        Call this method in a context of this object.
        """
        least = max(1, min(size, _MOST_AT_ONCE))
        if least != self._least:
            self._least = least
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)


def _drop(unsent: list[Buffer | WithDescriptor], sent: int) -> None:
    """Remove the first `sent` bytes, which have no descriptor."""
    done = 0
    for buffer in unsent:
        if isinstance(buffer, WithDescriptor):
            break
        size = memoryview(buffer).nbytes
        if sent < size:
            unsent[done] = memoryview(buffer)[sent:]
            break
        sent -= size
        done += 1
    del unsent[:done]


def configure(sock: socket.socket) -> None:
    """Make `sock` blocking, as MSG_WAITALL needs; on a TCP socket also disable Nagle's delay."""
    sock.setblocking(True)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _BODY_TIMEVAL)
    if _is_tcp(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def set_peer_timeout(sock: socket.socket, seconds: float) -> None:
    """Make the kernel end a TCP connection within `seconds` after its peer became unreachable.

    Two timers, since keep-alive does not run while data is unacknowledged: each gets half of the
    time, because the second may start just before the first ends. The kernel counts a peer that
    accepts no data (its receive window is zero) as unreachable, too. Keep-alive counts whole
    seconds, so an idle connection takes 2 s at least. Sockets of other families are left unchanged:
    their peers are on this host, where the kernel ends the connection with the process.
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
    except TimeoutError as error:
        # If only the server had ended, its machine would have refused the connection.
        raise UnavailableError(
            f"cannot connect to {address}: no answer within {timeout:.1f} s; its machine cannot be "
            "reached, or a firewall drops what is sent there"
        ) from error
    except OSError as error:
        raise UnavailableError(f"cannot connect to {address}: {error}") from error
    if itself:
        # The kernel gave this socket the target port and connected the socket to itself.
        sock.close()
        raise UnavailableError(f"cannot connect to {address}: no server listens there")
    return sock
