"""Transport within one process: passes elements as Python objects, without encoding."""

import copy
import itertools
import os
import secrets
from typing import Any

import msgspec
import numpy as np

from stoker.elements.structure import map_structure
from stoker.errors import InvalidArgumentError, UnavailableError
from stoker.wire.frames import Frame, Message
from stoker.wire.transports import Connection
from stoker.wire.transports.queues import QueueConnection, QueueTransport

PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})
"""Types of elements without parts that could be changed: a list of such elements is passed without
a copy, and the list remains the sender's."""

_token = ""
_token_pid = 0


def process_token() -> str:
    """Return a random token of this process; a forked child has another.

    Addresses of this transport start with the token, so a client can recognize a worker of its own
    process.
    """
    global _token, _token_pid
    # A forked child inherits the token, but its parent's listeners are in another process.
    if _token_pid != os.getpid():
        _token, _token_pid = secrets.token_hex(16), os.getpid()
    return _token


class LocalConnection(QueueConnection):
    """Passes messages unchanged, except that shared or read-only arrays are copied."""

    def pack(self, message: Message) -> Any:
        if isinstance(message, Frame) and not PLAIN.issuperset(map(type, message.elements)):
            # Elements are the receiver's to change: what another reader sees is copied.
            convert = _copied if message.shared else _writable
            elements = [map_structure(convert, element) for element in message.elements]
            return msgspec.structs.replace(message, elements=elements)
        return message


def _writable(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray) and not leaf.flags.writeable:
        return leaf.copy(order="K")
    return leaf


def _copied(leaf: Any) -> Any:
    return leaf.copy(order="K") if isinstance(leaf, np.ndarray) else copy.deepcopy(leaf)


class LocalTransport(QueueTransport):
    """Listeners of this process at "<process token>/<n>"; host and port are ignored."""

    name = "local"
    connection_class = LocalConnection

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def _address(self, host: str, port: int) -> str:
        return f"{process_token()}/{next(self._numbers)}"

    def connect(self, address: str, timeout: float) -> Connection:
        token, slash, _ = address.partition("/")
        if not slash:
            raise InvalidArgumentError(
                f"{address!r} is not an address of the local transport; write "
                "<process token>/<number>"
            )
        if token != process_token():
            raise UnavailableError(
                f"cannot connect to {address}: it is in another process; read it over tcp"
            )
        return super().connect(address, timeout)


LOCAL = LocalTransport()
