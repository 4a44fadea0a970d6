"""Transport between processes of one host: Unix sockets with unique abstract names."""

import os
import secrets
import socket
import struct
from functools import partial

from stoker.errors import InvalidArgumentError, PermissionDeniedError, UnavailableError
from stoker.wire.transports import (
    Connection,
    Listener,
    ListenOptions,
    Transport,
)
from stoker.wire.transports.accepting import SocketListener
from stoker.wire.transports.shm.connection import ShmConnection
from stoker.wire.transports.shm.mapping import new_mapping
from stoker.wire.transports.shm.segments import PAGE, Segments
from stoker.wire.transports.tcp import MAX_LISTENER_BYTES

_DEFAULT_BYTES = 256 << 20
_NAME = "@stoker-"
_BACKLOG = 1024
_CREDENTIALS = struct.Struct("iII")


class ShmTransport(Transport):
    """Shared memory between processes of one user on one Linux host.

    Addresses are "@stoker-<random>": abstract names of Unix sockets, which exist in no file system
    and end with the process. A client that can connect is therefore on the same host.

    Args:
        segments: pool shared by all listeners; None makes a pool per listener, closed with the
            listener.
    """

    name = "shm"

    def __init__(self, segments: Segments | None = None) -> None:
        self._segments = segments
        self._unusable = ""

    def _listen(self, host: str, port: int, options: ListenOptions) -> Listener:
        # Host, port and timeout have no effect: the name is unique on this host, whose kernel
        # ends a connection with the process of its peer.
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address = _NAME + secrets.token_hex(16)
        try:
            # Fail now if memory cannot be shared: the client can still choose another transport.
            new_mapping(PAGE)
            sock.bind(_abstract(address))
            sock.listen(_BACKLOG)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            raise UnavailableError(f"cannot share memory on this host: {error}") from error
        segments = self._segments or Segments(_DEFAULT_BYTES)
        on_close = _nothing if segments is self._segments else segments.close
        return SocketListener([sock], address, partial(_accepted, segments), options, on_close)

    def connect(self, address: str, timeout: float) -> Connection:
        if not address.startswith(_NAME):
            raise InvalidArgumentError(
                f"{address!r} is not an address of the shm transport; write {_NAME}<random>"
            )
        if self._unusable:
            raise UnavailableError(f"cannot connect to {address}: {self._unusable}")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(max(timeout, 1e-3))
            sock.connect(_abstract(address))
            _check_peer(sock)
            return ShmConnection(sock, address, on_map_error=self._give_up)
        except OSError as error:
            sock.close()
            raise UnavailableError(
                f"cannot connect to {address}: {error}; it is on another host, or ended"
            ) from error

    def _give_up(self, reason: str) -> None:
        # Descriptors or address space ran out, and may again; TCP needs neither.
        self._unusable = reason


def _nothing() -> None:
    """Close no pool: its owner does."""


def _accepted(segments: Segments, sock: socket.socket, _address: object) -> Connection:
    process = _check_peer(sock)
    peer = f"process {process}"
    return ShmConnection(sock, peer, segments, MAX_LISTENER_BYTES, MAX_LISTENER_BYTES)


def _check_peer(sock: socket.socket) -> int:
    """Return the id of the process at the other end of `sock`.

    Raises:
        PermissionDeniedError: if another user runs that process.
    """
    size = _CREDENTIALS.size
    # Abstract sockets have no permissions: the kernel says who is at the other end.
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    if user != os.geteuid():
        raise PermissionDeniedError(
            f"process {process} runs as user {user}, this one as user {os.geteuid()}; memory is "
            f"shared only between processes of one user"
        )
    return int(process)


def _abstract(address: str) -> bytes:
    return b"\0" + address[1:].encode()


SHM = ShmTransport()
