"""Messages in gRPC calls, for networks that pass nothing else."""

import logging
import socket
import time

from stoker.errors import StokerError, UnavailableError
from stoker.wire.transports import Connection, Listener, OnConnection, Transport
from stoker.wire.transports.accepting import TcpListener, listen_on
from stoker.wire.transports.addresses import format_address
from stoker.wire.transports.grpc.connection import GrpcConnection
from stoker.wire.transports.stream_socket import dial
from stoker.wire.transports.tcp import MAX_BODY_BYTES, MAX_LISTENER_BYTES

_log = logging.getLogger(__name__)


class GrpcTransport(Transport):
    """HTTP/2 without TLS over TCP, one call a connection; addresses are as of TCP's.

    Args:
        call_seconds: a connection on which no call was begun for so long is closed.
    """

    name = "grpc"

    def __init__(self, call_seconds: float = 60.0) -> None:
        self.call_seconds = call_seconds

    def listen(self, host: str, port: int, on_connection: OnConnection) -> Listener:
        def accept_call(connection: Connection) -> None:
            assert isinstance(connection, GrpcConnection)
            try:
                connection.accept_call(time.monotonic() + self.call_seconds)
            except (StokerError, OSError) as error:
                _log.warning("connection from %s is closed: %s", connection.peer, error)
                connection.close()
            else:
                on_connection(connection)

        return TcpListener(listen_on(host, port), host, _accepted, accept_call)

    def connect(self, address: str, timeout: float) -> Connection:
        deadline = time.monotonic() + timeout
        connection = GrpcConnection(dial(address, timeout), address, MAX_BODY_BYTES)
        try:
            connection.open_call(address, deadline)
        except (StokerError, OSError) as error:
            connection.close()
            raise UnavailableError(f"cannot connect to {address} by gRPC: {error}") from error
        return connection


def _accepted(sock: socket.socket, address: tuple[str, int]) -> Connection:
    peer = format_address(*address[:2])
    return GrpcConnection(sock, peer, MAX_LISTENER_BYTES, MAX_LISTENER_BYTES)


GRPC = GrpcTransport()
