import os
import select
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from stoker.errors import InvalidArgumentError, UnavailableError, WireError
from stoker.wire.addresses import parse_address
from stoker.wire.frames import PREFIX, Credit, Frame, Ready
from stoker.wire.transports.tcp import MAX_LISTENER_BYTES, TCP, TcpConnection
from tests.wire.elements import exact, message_bytes
from tests.wire.pairs import connected, meets


@pytest.fixture
def raw():
    """A plain socket and the connection on its other end."""
    plain, ours = tcp_pair()
    connection = TcpConnection(ours, "the peer", max_body_bytes=1 << 30)
    yield plain, connection
    plain.close()
    connection.close()


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    return near, far


def test_a_message_split_anywhere_arrives(raw):
    plain, connection = raw
    elements = [{"a": np.arange(5000), "b": "x"}]
    data = message_bytes(Frame(1, elements)) + message_bytes(Ready(2))
    for cut in (1, 15, 16, 17, 40, 300, 4096, 20_000, len(data) - 1):
        plain.sendall(data[:cut])
        if cut < len(data) - 30:
            with pytest.raises(TimeoutError, match="the peer sent no whole message in time"):
                connection.receive(0.01)
        plain.sendall(data[cut:])
        frame = connection.receive(5)
        assert list(map(exact, frame.elements)) == list(map(exact, elements))
        assert connection.receive(5) == Ready(2)


def test_messages_glued_together_are_taken_apart(raw):
    plain, connection = raw
    plain.sendall(b"".join(message_bytes(Credit(n, n, n)) for n in range(1000)))
    assert [connection.receive(5) for _ in range(1000)] == [Credit(n, n, n) for n in range(1000)]


def test_a_header_longer_than_the_read_ahead_arrives(raw):
    plain, connection = raw
    elements = [{f"key {i}": i for i in range(5000)}]
    sender = threading.Thread(
        target=plain.sendall, args=(message_bytes(Frame(0, elements)) + message_bytes(Ready(1)),)
    )
    sender.start()
    assert connection.receive(5).elements == elements
    assert connection.receive(5) == Ready(1)
    sender.join(5)


def test_a_frame_of_more_buffers_than_one_call_takes_arrives(raw):
    plain, connection = raw
    elements = [np.full((1 << 16) + n, n % 256, np.uint8) for n in range(1500)]
    other = TcpConnection(plain.dup(), "us")
    sender = threading.Thread(target=other.send, args=(Frame(0, elements),))
    sender.start()
    frame = connection.receive(30)
    assert list(map(exact, frame.elements)) == list(map(exact, elements))
    sender.join(5)
    other.close()


def test_messages_without_a_body_take_no_memory_for_one(raw, monkeypatch):
    plain, connection = raw
    monkeypatch.setattr(connection._bodies, "take", None)
    plain.sendall(message_bytes(Ready(1)) + message_bytes(Frame(0, [])))
    assert connection.receive(5) == Ready(1)
    assert connection.receive(5).elements == []


def test_memory_for_a_long_header_is_let_go_of(raw):
    plain, connection = raw
    before = len(connection._reader.data)
    elements = [{f"key {i}": i for i in range(500)}]
    plain.sendall(message_bytes(Frame(0, elements)))
    assert connection.receive(5).elements == elements
    assert len(connection._reader.data) > before
    plain.sendall(message_bytes(Ready(1)))
    assert connection.receive(5) == Ready(1)
    assert len(connection._reader.data) == before


def test_half_a_message_and_a_close_is_a_peer_that_is_gone(raw):
    plain, connection = raw
    plain.sendall(message_bytes(Frame(0, [np.zeros(1000)]))[:500])
    plain.close()
    with pytest.raises(UnavailableError, match="the peer disconnected"):
        connection.receive(5)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n",
        PREFIX.pack(b"stk1", 10, 2**60),
        PREFIX.pack(b"stk1", 2**32 - 1, 0),
        PREFIX.pack(b"stk1", 4, 0) + b"\xff\xff\xff\xff",
    ],
)
def test_invalid_message_closes_connection_and_names_peer(raw, data):
    plain, connection = raw
    plain.sendall(data)
    with pytest.raises(WireError, match="the peer sent what is not a message"):
        connection.receive(5)
    assert connection.closed


def test_a_listener_refuses_bodies_that_no_client_sends():
    with connected(TCP) as pair:
        pair.near.send(Frame(0, [np.zeros(MAX_LISTENER_BYTES, np.uint8)]))
        pair.near.send(Frame(0, [np.zeros(MAX_LISTENER_BYTES + 1, np.uint8)]))
        pair.far.receive(5)
        with pytest.raises(WireError, match=f"longer than the {MAX_LISTENER_BYTES} allowed"):
            pair.far.receive(5)


def test_close_wakes_a_blocked_send(raw):
    _, connection = raw
    outcome = []

    def send():
        try:
            while True:
                connection.send(Frame(0, [np.zeros(1 << 20)]))
        except UnavailableError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=send)
    thread.start()
    # Once the kernel takes no more, the send is in it for good.
    sock = connection._stream._socket
    assert meets(lambda: connection._stream._unsent and not select.select([], [sock], [], 0)[1])
    connection.close()
    thread.join(5)
    assert outcome == ["the connection to the peer was closed on this side"]
    assert connection._stream._socket.fileno() == -1


def test_last_messages_of_a_peer_arrive_after_a_failed_send(raw):
    plain, connection = raw
    plain.sendall(message_bytes(Ready(7)))
    plain.close()

    def fails():
        try:
            connection.send(Ready(1))
        except UnavailableError as error:
            return "the peer disconnected" in str(error)
        return False

    assert meets(fails)
    assert connection.receive(5) == Ready(7)
    with pytest.raises(UnavailableError, match="the peer disconnected"):
        connection.receive(5)


def test_an_unencodable_element_leaves_the_connection_usable():
    with connected(TCP) as pair:
        with pytest.raises(InvalidArgumentError, match="element is a object"):
            pair.near.send(Frame(0, [object()]))
        pair.near.send(Ready(1))
        assert pair.far.receive(5) == Ready(1)


_PEER = """
import sys
from stoker.wire.frames import Ready
from stoker.wire.transports.tcp import TCP
connection = TCP.connect(sys.argv[1], 5)
connection.send(Ready(1))
connection.receive()
"""


def test_a_killed_peer_is_unavailable_and_named():
    accepted = []
    arrived = threading.Event()

    def serve(connection):
        accepted.append(connection)
        arrived.set()

    listener = TCP.listen("127.0.0.1", 0, serve)
    with subprocess.Popen([sys.executable, "-c", _PEER, listener.address]) as process:
        assert arrived.wait(30)
        (connection,) = accepted
        assert connection.receive(30) == Ready(1)
        process.send_signal(signal.SIGKILL)
        with pytest.raises(UnavailableError, match=rf"^{connection.peer} disconnected"):
            connection.receive(5)
    listener.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_listener_says_its_host_and_real_port(host):
    with connected(TCP, host) as pair:
        name, port = parse_address(pair.listener.address)
        assert name == host
        assert port > 0
        assert pair.near.peer == pair.listener.address


def test_ipv6_is_listened_on_and_connected_to():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on this host")
    with connected(TCP, "::1") as pair:
        assert pair.listener.address.startswith("[::1]:")
        pair.near.send(Ready(1))
        assert pair.far.receive(5) == Ready(1)


def test_a_port_that_is_taken_is_named():
    with connected(TCP, "127.0.0.1") as pair:
        _, port = parse_address(pair.listener.address)
        with pytest.raises(UnavailableError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            TCP.listen("127.0.0.1", port, lambda connection: None)


def test_connecting_where_nobody_listens_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(UnavailableError, match=f"cannot connect to 127.0.0.1:{port}"):
        TCP.connect(f"127.0.0.1:{port}", 5)


def test_sockets_are_closed_in_programs_that_are_started():
    with connected(TCP) as pair:
        for connection in pair.both:
            assert isinstance(connection, TcpConnection)
            assert not os.get_inheritable(connection._stream._socket.fileno())
