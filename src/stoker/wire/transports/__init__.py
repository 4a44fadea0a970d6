"""One seam: what carries messages between a worker and a client, and the transports that do."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from stoker.elements.codec.elements import TypeResolver
from stoker.errors import InvalidArgumentError, NotFoundError
from stoker.wire.frames import Message
from stoker.wire.packing import Packer


class Connection(ABC):
    """Both directions between two peers. One thread may receive while any others send.

    Attributes:
        peer: the other side, for error messages.
        types: rebuilds namedtuples and dataclasses in what is received; set it from the reader's
            element_spec before the first frame arrives.
        packer: compresses the frames that are sent, as the peer wishes; ``None``: they are not. Of
            no effect where nothing is gained: in shared memory and within a process.
    """

    peer: str
    types: TypeResolver
    packer: Packer | None = None

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether this side was closed."""

    @property
    def shared_bytes(self) -> int:
        """How many bytes of the peer's memory are seen by views of what was received."""
        return 0

    @abstractmethod
    def send(self, message: Message) -> None:
        """Hand `message` over; blocks while the peer does not take it.

        Raises:
            UnavailableError: the peer is gone, or this side was closed.
            InvalidArgumentError: an element cannot travel; nothing was sent.
            FailedPreconditionError: the elements of a frame differ too much; nothing was sent.
        """

    def send_now(self, message: Message) -> bool:
        """Hand `message` over if that does not wait for the peer, or for the network.

        Returns:
            False if it would: nothing was sent, and `send` of the same message is to follow.

        Raises:
            As `send`.
        """
        return False

    @abstractmethod
    def receive(self, timeout: float | None = None) -> Message:
        """The next message; what had arrived before the peer went is still delivered.

        Args:
            timeout: seconds to wait for the whole message; None waits for ever.

        Raises:
            TimeoutError: nothing whole arrived in time; the next call goes on where this stopped.
            UnavailableError: the peer is gone, or this side was closed.
            WireError: the peer sent something that is not a message; the connection is closed.
        """

    @abstractmethod
    def close(self) -> None:
        """End both directions and wake whoever is blocked in `send` or `receive`.

        Idempotent, from any thread.
        Messages under way may be lost: to be sure of a last one, wait for the peer's `Bye` to it.
        """


class Listener(ABC):
    """Where connections arrive.

    Attributes:
        address: what a client passes to `Transport.connect`.
    """

    address: str

    @abstractmethod
    def close(self) -> None:
        """Accept no more, close what was accepted, and end its threads. Idempotent."""


OnConnection: TypeAlias = Callable[[Connection], None]


class Transport(ABC):
    """A way to carry messages.

    Attributes:
        name: as users write it in `data_transfer_protocol`.
    """

    name: str

    @abstractmethod
    def listen(self, host: str, port: int, on_connection: OnConnection) -> Listener:
        """Accept connections; port 0 takes any free one.

        `on_connection` is called on a daemon thread of its own for each connection. When it returns
        the connection stays open until somebody closes it, or the listener; when it raises, it is
        closed.

        Raises:
            UnavailableError: the address cannot be listened on.
        """

    @abstractmethod
    def connect(self, address: str, timeout: float) -> Connection:
        """A connection to the listener at `address`, within `timeout` seconds.

        Raises:
            UnavailableError: nobody listens there.
            InvalidArgumentError: `address` is not an address of this transport.
        """


_TRANSPORTS = {
    "grpc": ("stoker.wire.transports.grpc", "GRPC"),
    "local": ("stoker.wire.transports.local", "LOCAL"),
    "memory": ("stoker.wire.transports.memory", "MEMORY"),
    "shm": ("stoker.wire.transports.shm", "SHM"),
    "tcp": ("stoker.wire.transports.tcp", "TCP"),
}


def get_transport(name: str) -> Transport:
    """The transport called `name`: "tcp", "shm", "grpc", "local" or "memory".

    Raises:
        NotFoundError: no transport has this name.
        InvalidArgumentError: `name` is "grpc" and grpcio is not installed.
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
