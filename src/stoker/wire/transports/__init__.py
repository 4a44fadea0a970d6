"""The transport interface between workers and clients, and the lookup of its implementations."""

import importlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from stoker.elements.codec.elements import TypeResolver
from stoker.errors import InvalidArgumentError, NotFoundError, StokerError, UnavailableError
from stoker.wire.frame_compressor import FrameCompressor
from stoker.wire.frames import Message
from stoker.wire.transports.poller import Poller, Ready

PEER_TIMEOUT = 10.0
"""Seconds in which a connection notices that its peer cannot be reached, by default."""

GRPC_PATH = "/stoker.Worker/Read"
"""Service and method of gRPC by which workers serve elements."""

_FORGET_AT = 64
_log = logging.getLogger(__name__)


class Connection(ABC):
    """Bidirectional connection of two peers.

    A `Channel` runs a connection with a `Poller`, so that few threads serve many connections, and
    one thread at a time uses the socket: `send_now`, `flush` and `receive_now` do not wait for the
    peer. Without a channel, `send` and `receive` wait: a thread may receive while threads send.

    Attributes:
        peer: the peer's address, for error messages.
        protocol: the name of the transport, where the client has set this attribute.
        types: rebuilds namedtuples and dataclasses in what is received; set from the reader's
            element_spec before the first frame arrives.
        compressor: compresses the frames that are sent, as the peer requests; ``None``: none is. Of
            no effect where nothing is gained: in shared memory and within a process.
    """

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.protocol = ""
        self.types = TypeResolver()
        self.compressor: FrameCompressor | None = None
        self._send_lock = threading.Lock()

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True once this side was closed."""

    @property
    def shared_bytes(self) -> int:
        """Size of the peer's memory that views of received elements refer to, in bytes."""
        return 0

    @property
    def has_ahead(self) -> bool:
        """True if bytes of the next message were received, which no poller reports."""
        return False

    @abstractmethod
    def send_now(self, message: Message) -> bool:
        """Begin to send `message`; return whether the whole message was sent.

        If not, `flush` must return True before the next message.

        Raises:
            UnavailableError: if the peer disconnected, or this side was closed.
            InvalidArgumentError: if an element cannot be encoded; nothing was sent.
            FailedPreconditionError: if the elements of a frame differ too much; nothing was sent.
        """

    @abstractmethod
    def flush(self) -> bool:
        """Send more of the last message; return whether the whole message was sent.

        Raises:
            UnavailableError: see `send_now`.
        """

    @abstractmethod
    def receive_now(self) -> Message | None:
        """Return the next message; ``None`` if the message has not arrived completely.

        Messages that arrived before a disconnect are still delivered. A client waits for the rest
        of a large frame for some milliseconds.

        Raises:
            UnavailableError: if the peer disconnected, or this side was closed.
            WireError: if the peer sent an invalid message; the connection is closed.
        """

    @abstractmethod
    def watch(self, poller: Poller, ready: Ready, *, writable: bool) -> None:
        """Make `poller` call `ready` once, when `receive_now` may return a message.

        With `writable` also when `flush` may send more. A later call replaces this call.

        Raises:
            UnavailableError: if this side was closed.
        """

    @abstractmethod
    def wait(self, deadline: float | None, *, writable: bool) -> None:
        """Wait until `receive_now`, or if `writable` `flush`, may do something.

        Args:
            deadline: in `time.monotonic` seconds; None waits forever.
            writable: wait for `flush`.

        Raises:
            TimeoutError: after the deadline.
            UnavailableError: if this side was closed.
        """

    def send(self, message: Message) -> None:
        """Send `message`; waits while the peer does not receive. Raises as `send_now`."""
        with self._send_lock:
            try:
                sent = self.send_now(message)
                while not sent:
                    self.wait(None, writable=True)
                    sent = self.flush()
            except (StokerError, OSError):
                raise  # the transport has ended the connection, or nothing was sent
            except BaseException:  # half of the message may be sent: nothing may follow
                self.close()
                raise

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message; messages that arrived before a disconnect are still delivered.

        Args:
            timeout: seconds to wait for the whole message; None waits forever.

        Raises:
            TimeoutError: if no whole message arrived in time; the next call continues the message.
            UnavailableError, WireError: see `receive_now`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (message := self.receive_now()) is None:
            self.wait(deadline, writable=False)
        return message

    def set_peer_timeout(self, seconds: float) -> None:  # noqa: B027 - most have a fixed one
        """Notice within `seconds` that the peer cannot be reached; the connection then ends.

        Of no effect on connections within a host, whose kernel ends them with the peer's process,
        and on gRPC, which fixes the time when it connects.
        """

    @abstractmethod
    def close(self) -> None:
        """End both directions and wake threads in `send` or `receive`.

        Idempotent, from any thread. Messages in flight may be lost: to be sure that the last one
        arrived, wait for the peer's `Bye`.
        """


OnConnection: TypeAlias = Callable[[Connection], None]


@dataclass(frozen=True)
class ListenOptions:
    """Arguments of `Transport.listen` besides the address."""

    on_connection: OnConnection
    peer_timeout: float
    poller: Poller | None


class Listener:
    """Acceptor of connections, which are closed with the listener.

    Args:
        address: argument for `Transport.connect`.
        options: `on_connection` is called for each connection.

    Attributes:
        address: argument for `Transport.connect`.
    """

    def __init__(self, address: str, options: ListenOptions) -> None:
        self.address = address
        self._on_connection = options.on_connection
        self._lock = threading.Lock()
        self._closed = False
        self._accepted: set[Connection] = set()
        self._forget_at = _FORGET_AT

    def serve(self, connection: Connection) -> None:
        """Serve an accepted connection; close the connection if `on_connection` raises.

        Raises:
            UnavailableError: if the listener was closed; so is the connection.
        """
        with self._lock:
            closed = self._closed
            if not closed:
                self._forget_closed()
                self._accepted.add(connection)
        if closed:
            connection.close()
            raise UnavailableError(f"the listener that {connection.peer} connected to was closed")
        try:
            self._on_connection(connection)
        except (StokerError, OSError) as error:
            # Errors a peer can cause: silence, invalid messages, disconnecting.
            _log.info("the connection from %s ended: %s", connection.peer, error)
            connection.close()
        except Exception:  # noqa: BLE001 - logged; the thread serves the others
            _log.exception("the connection from %s is closed", connection.peer)
            connection.close()

    def _forget_closed(self) -> None:
        # The threshold doubles, so that each connection is looked at a constant number of times.
        if len(self._accepted) >= self._forget_at:
            self._accepted = {each for each in self._accepted if not each.closed}
            self._forget_at = max(_FORGET_AT, 2 * len(self._accepted))

    def close(self) -> None:
        """Stop accepting and close the accepted connections. Idempotent."""
        with self._lock:
            self._closed = True
            accepted, self._accepted = self._accepted, set()
        for connection in accepted:
            connection.close()


class Transport(ABC):
    """A way to carry messages.

    Attributes:
        name: value of `data_transfer_protocol`.
    """

    name: str

    def listen(
        self,
        host: str,
        port: int,
        on_connection: OnConnection,
        peer_timeout: float = PEER_TIMEOUT,
        poller: Poller | None = None,
    ) -> Listener:
        """Accept connections; port 0 selects any free port.

        `on_connection` is called for each connection, on a thread of `poller` or of the transport,
        and must not wait. When `on_connection` returns, the connection stays open until the
        connection or the listener is closed; when `on_connection` raises, the connection is closed.

        Args:
            host: name or address to bind.
            port: port to bind.
            on_connection: called for each connection.
            peer_timeout: see `Connection.set_peer_timeout`.
            poller: accepts the connections; None makes one for this listener.

        Raises:
            UnavailableError: if the address is not of this host, or in use.
        """
        return self._listen(host, port, ListenOptions(on_connection, peer_timeout, poller))

    @abstractmethod
    def _listen(self, host: str, port: int, options: ListenOptions) -> Listener:
        """Return the listener; arguments and errors of `listen`."""

    @abstractmethod
    def connect(self, address: str, timeout: float) -> Connection:
        """Return a connection to the listener at `address`, within `timeout` seconds.

        Raises:
            UnavailableError: if nothing listens at `address`.
            InvalidArgumentError: if `address` is not an address of this transport.
        """


_TRANSPORTS = ("grpc", "local", "memory", "shm", "tcp")
"""Modules of this package; each has the transport in a constant of the same name."""


def get_transport(name: str) -> Transport:
    """Return the transport `name`: "tcp", "shm", "grpc", "local" or "memory".

    Raises:
        NotFoundError: if no transport has this name.
        InvalidArgumentError: if `name` is "grpc" and grpcio is not installed.
    """
    if name not in _TRANSPORTS:
        known = ", ".join(repr(known) for known in _TRANSPORTS)
        raise NotFoundError(f"no data transfer protocol {name!r}; there are {known}")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        raise InvalidArgumentError(
            f"`data_transfer_protocol={name!r}` needs grpcio; install it with "
            "`pip install 'stoker[grpc]'`"
        ) from error
    transport: Transport = getattr(module, name.upper())
    return transport
