"""The transport interface between workers and clients, and the lookup of its implementations."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from stoker.elements.codec.elements import TypeResolver
from stoker.errors import InvalidArgumentError, NotFoundError
from stoker.wire.frame_compressor import FrameCompressor
from stoker.wire.frames import Message

PEER_TIMEOUT = 10.0
"""Seconds in which a connection notices that its peer cannot be reached, by default."""


class Connection(ABC):
    """Bidirectional connection of two peers. One thread may receive while any others send.

    Attributes:
        peer: the other side, for error messages.
        types: rebuilds namedtuples and dataclasses in what is received; set it from the reader's
            element_spec before the first frame arrives.
        compressor: compresses the frames that are sent, as the peer requests; ``None``: none is. Of
            no effect where nothing is gained: in shared memory and within a process.
    """

    peer: str
    types: TypeResolver
    compressor: FrameCompressor | None = None

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True once this side was closed."""

    @property
    def shared_bytes(self) -> int:
        """Size of the peer's memory that views of received elements refer to, in bytes."""
        return 0

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send `message`; blocks while the peer does not receive.

        Raises:
            UnavailableError: if the peer disconnected, or this side was closed.
            InvalidArgumentError: if an element cannot be encoded; nothing was sent.
            FailedPreconditionError: if the elements of a frame differ too much; nothing was sent.
        """

    def send_now(self, message: Message) -> bool:
        """Send `message` if that does not block on the peer or the network.

        Returns:
            False if it would block: nothing was sent, and the caller must `send` the same message.

        Raises:
            UnavailableError, InvalidArgumentError, FailedPreconditionError: see `send`.
        """
        return False

    @abstractmethod
    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message; messages that arrived before a disconnect are still delivered.

        Args:
            timeout: seconds to wait for the whole message; None waits forever.

        Raises:
            TimeoutError: if no whole message arrived in time; the next call continues it.
            UnavailableError: if the peer disconnected, or this side was closed.
            WireError: if the peer sent an invalid message; the connection is closed.
        """

    def set_peer_timeout(self, seconds: float) -> None:  # noqa: B027 - most have a fixed one
        """Notice within `seconds` that the peer cannot be reached; `send` and `receive` then raise.

        Of no effect on connections within a host, whose kernel ends them with the peer's process,
        and on gRPC, which fixes the time when it connects.
        """

    @abstractmethod
    def close(self) -> None:
        """End both directions and wake threads blocked in `send` or `receive`.

        Idempotent, from any thread. Messages in flight may be lost: to be sure that the last one
        arrived, wait for the peer's `Bye`.
        """


class Listener(ABC):
    """Acceptor of connections.

    Attributes:
        address: argument for `Transport.connect`.
    """

    address: str

    @abstractmethod
    def close(self) -> None:
        """Stop accepting, close the accepted connections and end their threads. Idempotent."""


OnConnection: TypeAlias = Callable[[Connection], None]


class Transport(ABC):
    """A way to carry messages.

    Attributes:
        name: value of `data_transfer_protocol`.
    """

    name: str

    @abstractmethod
    def listen(
        self,
        host: str,
        port: int,
        on_connection: OnConnection,
        peer_timeout: float = PEER_TIMEOUT,
    ) -> Listener:
        """Accept connections; port 0 selects any free port.

        `on_connection` is called on a dedicated daemon thread for each connection. When it returns,
        the connection stays open until it or the listener is closed; when it raises, the connection
        is closed. `peer_timeout`: see `Connection.set_peer_timeout`.

        Raises:
            UnavailableError: if the address is not of this host, or in use.
        """

    @abstractmethod
    def connect(self, address: str, timeout: float) -> Connection:
        """Return a connection to the listener at `address`, within `timeout` seconds.

        Raises:
            UnavailableError: if nothing listens at `address`.
            InvalidArgumentError: if `address` is not an address of this transport.
        """


_TRANSPORTS = {
    "grpc": ("stoker.wire.transports.grpc", "GRPC"),
    "local": ("stoker.wire.transports.local", "LOCAL"),
    "memory": ("stoker.wire.transports.memory", "MEMORY"),
    "shm": ("stoker.wire.transports.shm", "SHM"),
    "tcp": ("stoker.wire.transports.tcp", "TCP"),
}


def get_transport(name: str) -> Transport:
    """Return the transport `name`: "tcp", "shm", "grpc", "local" or "memory".

    Raises:
        NotFoundError: if no transport has this name.
        InvalidArgumentError: if `name` is "grpc" and grpcio is not installed.
    """
    if name not in _TRANSPORTS:
        known = ", ".join(repr(known) for known in sorted(_TRANSPORTS))
        raise NotFoundError(f"no data transfer protocol {name!r}; there are {known}")
    module, attribute = _TRANSPORTS[name]
    try:
        transport: Transport = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        raise InvalidArgumentError(
            f"`data_transfer_protocol={name!r}` needs grpcio; install it with "
            "`pip install 'stoker[grpc]'`"
        ) from error
    return transport
