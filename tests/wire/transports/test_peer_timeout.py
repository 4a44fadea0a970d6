"""Peers that cannot be reached any more: each transport notices in the time it was given."""

import socket
import sys
import threading
import time
from itertools import repeat
from typing import Any

import pytest

from stoker.errors import UnavailableError
from stoker.wire.frames import Ready
from stoker.wire.transports import Connection
from stoker.wire.transports import grpc as grpc_module
from stoker.wire.transports.grpc import GRPC
from stoker.wire.transports.stream_socket import set_peer_timeout
from stoker.wire.transports.tcp import TCP
from tests.faults.proxy import CuttingProxy
from tests.wire.cutting import cut

TIMEOUT = 2.0
LATE = 1.0
"""Time for the kernel's timers and a busy machine, in seconds."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="drops packets with a socket filter")


def _socket_of(connection: Any) -> socket.socket:
    found: socket.socket = connection._stream._socket
    return found


def _seconds_to_notice(connection: Connection) -> float:
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="disconnected"):
        connection.receive(10 * TIMEOUT)
    return time.monotonic() - began


@pytest.fixture
def tcp_ends():
    accepted: list[Connection] = []
    arrived = threading.Event()

    def serve(connection: Connection) -> None:
        accepted.append(connection)
        arrived.set()

    listener = TCP.listen("127.0.0.1", 0, serve, TIMEOUT)
    near = TCP.connect(listener.address, 5)
    near.set_peer_timeout(TIMEOUT)
    assert arrived.wait(5)
    yield near, accepted[0]
    near.close()
    listener.close()


@linux
@pytest.mark.parametrize("unacknowledged", [True, False], ids=["sending", "idle"])
@pytest.mark.parametrize("end", [0, 1], ids=["client", "worker"])
def test_cut_tcp_connection_is_noticed_at_each_end(tcp_ends, end, unacknowledged):
    cut(*map(_socket_of, tcp_ends))
    connection = tcp_ends[end]
    if unacknowledged:
        connection.send(Ready(1))
    assert _seconds_to_notice(connection) < TIMEOUT + LATE


@linux
def test_idle_tcp_connection_stays_open(tcp_ends):
    near, far = tcp_ends
    with pytest.raises(TimeoutError):
        near.receive(1.5 * TIMEOUT)
    far.send(Ready(1))
    assert near.receive(5) == Ready(1)


@linux
@pytest.mark.parametrize("seconds", [0.001, 1, 2.5, 10, 10**9])
def test_kernel_timers_fit_the_timeout(seconds):
    with socket.socket() as sock:
        set_peer_timeout(sock, seconds)

        def option(name: str) -> int:
            return sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))

        idle, interval = option("TCP_KEEPIDLE"), option("TCP_KEEPINTVL")
        assert idle + interval * option("TCP_KEEPCNT") <= max(seconds, 2)
        assert 500 <= option("TCP_USER_TIMEOUT") <= max(seconds, 1) * 500


@pytest.mark.parametrize("end", ["client", "worker"])
def test_silent_grpc_peer_is_noticed_at_each_end(monkeypatch, end):
    if end == "client":
        monkeypatch.setattr(grpc_module, "PEER_TIMEOUT", TIMEOUT)
    accepted: list[Connection] = []
    arrived = threading.Event()

    def serve(connection: Connection) -> None:
        accepted.append(connection)
        arrived.set()

    listener = GRPC.listen("127.0.0.1", 0, serve, TIMEOUT if end == "worker" else 600)
    port = int(listener.address.rpartition(":")[2])
    with CuttingProxy(port, repeat(1 << 60)) as proxy:
        near = GRPC.connect(f"127.0.0.1:{proxy.port}", 5)
        assert arrived.wait(5)
        proxy.swallow()
        assert _seconds_to_notice(near if end == "client" else accepted[0]) < TIMEOUT + LATE
        near.close()
        listener.close()
