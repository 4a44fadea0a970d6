"""Client and worker in one process: elements are handed over as the objects they are."""

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

_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})

_token = ""
_token_pid = 0


def process_token() -> str:
    """A random name of this process; a fork has another.

    What it is for: addresses of this transport start with it, so a client can tell whether a worker
    lives in its own process.
    """
    global _token, _token_pid
    if _token_pid != os.getpid():
        _token, _token_pid = secrets.token_hex(16), os.getpid()
    return _token


class LocalConnection(QueueConnection):
    """Passes messages on as they are; arrays that are shared or read-only are copied."""

    def pack(self, message: Message) -> Any:
        if isinstance(message, Frame) and not _PLAIN.issuperset(map(type, message.elements)):
            own = _copied if message.shared else _writable
            elements = [map_structure(own, element) for element in message.elements]
            return msgspec.structs.replace(message, elements=elements)
        return message


def _writable(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray) and not leaf.flags.writeable:
        return leaf.copy(order="K")
    return leaf


def _copied(leaf: Any) -> Any:
    return leaf.copy(order="K") if isinstance(leaf, np.ndarray) else copy.deepcopy(leaf)


class LocalTransport(QueueTransport):
    """Listeners of this process, at "<process token>/<n>"; host and port do not matter."""

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
                f"{address!r} is not an address of the local transport: <process token>/<number>"
            )
        if token != process_token():
            raise UnavailableError(
                f"cannot connect to {address}: it is in another process; read it over tcp"
            )
        return super().connect(address, timeout)


LOCAL = LocalTransport()
