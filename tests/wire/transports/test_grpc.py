"""Messages in gRPC calls; test_transports.py has the tests common to all transports."""

import asyncio
import contextlib
import errno
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from grpclib.client import Channel, StreamStreamMethod
from grpclib.encoding.base import CodecBase
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import StokerError, UnavailableError, WireError
from stoker.wire.frames import PREFIX, Bye, Credit, Frame, Ready
from stoker.wire.transports import GRPC_PATH, Connection
from stoker.wire.transports import grpc as module
from stoker.wire.transports.grpc import GRPC, PIECE_BYTES, GrpcConnection
from stoker.wire.transports.tcp import MAX_LISTENER_BYTES
from tests.wire.elements import exact, message_bytes
from tests.wire.pairs import connected, meets

MIB = 1 << 20


def _frame(connection: Connection) -> Frame:
    message = connection.receive(20)
    assert isinstance(message, Frame)
    return message


def _repeat(call: Callable[[], object]) -> None:
    while True:
        call()


class _Reader(GrpcConnection):
    """A connection whose peer sends `pieces` and closes."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__("the peer", MAX_LISTENER_BYTES, MAX_LISTENER_BYTES)
        self.start(iter(pieces), lambda: None)


# ── large, slow, broken ──────────────────────────────────────────────────────────────────────────
def test_frame_of_100_megabytes_arrives():
    array = np.arange(100_000_000 // 8)
    with connected(GRPC) as pair:
        sender = threading.Thread(target=pair.far.send, args=(Frame(0, [array, "x"]),))
        sender.start()
        frame = _frame(pair.near)
        sender.join(5)
        np.testing.assert_array_equal(frame.elements[0], array)
        assert frame.elements[1] == "x"


def test_piece_above_grpcs_default_limit_arrives(monkeypatch):
    monkeypatch.setattr(module, "PIECE_BYTES", 64 * MIB)
    with connected(GRPC) as pair:
        sender = threading.Thread(target=pair.far.send, args=(Frame(0, [np.ones(2 * MIB)]),))
        sender.start()
        assert _frame(pair.near).elements[0].sum() == 2 * MIB
        sender.join(5)


def test_slow_reader_blocks_the_sender():
    sent: list[int] = []
    with connected(GRPC) as pair:

        def send():
            for number in range(200):
                pair.far.send(Frame(number, [np.zeros(MIB // 8)]))
                sent.append(number)

        sender = threading.Thread(target=send)
        sender.start()
        assert meets(lambda: len(sent) > 2)
        for number in range(200):
            # Two queues, a piece beside each, and the windows of HTTP/2 and the kernel.
            assert len(sent) - number < 32
            assert _frame(pair.near).number == number
        sender.join(5)


def test_both_sides_send_and_receive_concurrently():
    def send(connection):
        for number in range(50):
            connection.send(Frame(number, [np.full(6_000, number)]))

    with connected(GRPC) as pair:
        senders = [threading.Thread(target=send, args=(each,)) for each in pair.both]
        for sender in senders:
            sender.start()
        for number in range(50):
            for each in pair.both:
                frame = _frame(each)
                assert frame.number == number
                assert (frame.elements[0] == number).all()
        for sender in senders:
            sender.join(5)


@contextlib.contextmanager
def _blocked_sender(connection: Connection) -> Iterator["queue.Queue[str]"]:
    """Send in a thread until it blocks; the queue gets the error that ends the thread."""
    outcome: queue.Queue[str] = queue.Queue()
    sent: list[int] = []

    def send():
        try:
            while True:
                connection.send(Frame(0, [np.zeros(MIB // 8)]))
                sent.append(1)
        except UnavailableError as error:
            outcome.put(str(error))

    sender = threading.Thread(target=send)
    sender.start()
    last = [-1]

    def is_blocked():
        before, last[0] = last[0], len(sent)
        return before == last[0] > 2

    tick = threading.Event()
    while not is_blocked():
        tick.wait(0.1)
    yield outcome
    sender.join(5)


def test_close_wakes_a_blocked_sender():
    with connected(GRPC) as pair, _blocked_sender(pair.far) as outcome:
        pair.far.close()
        assert "was closed on this side" in outcome.get(timeout=5)


def test_peers_close_wakes_a_blocked_sender():
    with connected(GRPC) as pair, _blocked_sender(pair.far) as outcome:
        pair.near.close()
        assert "disconnected" in outcome.get(timeout=5)


def test_message_sent_before_the_listener_closes_arrives():
    with connected(GRPC) as pair:
        pair.far.send(Bye())
        pair.listener.close()
        assert pair.near.receive(5) == Bye()


_PEER = """
import sys
from stoker.wire.frames import Ready
from stoker.wire.transports import get_transport
connection = get_transport("grpc").connect(sys.argv[1], 5)
connection.send(Ready(1))
connection.receive()
"""


def test_killed_peer_is_unavailable_and_named():
    accepted: queue.Queue[Connection] = queue.Queue()
    listener = GRPC.listen("127.0.0.1", 0, accepted.put)
    with subprocess.Popen([sys.executable, "-c", _PEER, listener.address]) as process:
        connection = accepted.get(timeout=30)
        assert connection.peer.startswith("127.0.0.1:")
        assert connection.receive(30) == Ready(1)
        process.send_signal(signal.SIGKILL)
        with pytest.raises(UnavailableError, match=rf"^{connection.peer} disconnected"):
            connection.receive(5)
        with pytest.raises(UnavailableError, match="disconnected"):
            connection.send(Ready(1))
    listener.close()


_UNCLOSED = """
from stoker.wire.transports import get_transport
transport = get_transport("grpc")
listener = transport.listen("localhost", 0, lambda connection: None)
connection = transport.connect(listener.address, 5)
"""


def test_process_exits_with_open_connections():
    subprocess.run([sys.executable, "-c", _UNCLOSED], check=True, timeout=30)


# ── addresses ────────────────────────────────────────────────────────────────────────────────────
def test_ipv6_address_works():
    with connected(GRPC, "::1") as pair:
        assert pair.listener.address.startswith("[::1]:")
        assert pair.far.peer.startswith("[::1]:")


def test_port_in_use_is_one_error():
    with connected(GRPC, "127.0.0.1") as pair:
        port = int(pair.listener.address.rpartition(":")[2])
        with pytest.raises(UnavailableError, match=f"cannot listen on 127.0.0.1:{port}.*another"):
            GRPC.listen("127.0.0.1", port, lambda connection: None)


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────
def test_message_in_small_pieces_is_joined():
    elements = [{"a": np.arange(300), "b": "x" * 1000}, {"a": np.arange(5), "b": ""}]
    data = message_bytes(Frame(0, elements))
    pieces = [data[start : start + 100] for start in range(0, len(data), 100)]
    reader = _Reader(message_bytes(Ready(1)), *pieces, message_bytes(Ready(2)))
    assert reader.receive(5) == Ready(1)
    assert list(map(exact, _frame(reader).elements)) == list(map(exact, elements))
    assert reader.receive(5) == Ready(2)
    with pytest.raises(UnavailableError, match="the peer disconnected: it closed the connection"):
        reader.receive(5)
    reader.close()


def test_no_piece_is_larger_than_requested():
    sender = GrpcConnection("the peer")
    array = np.arange(30_000)
    thread = threading.Thread(target=sender.send, args=(Frame(0, [array]),))
    thread.start()
    pieces = sender.outgoing(1000)
    data = b""
    while len(data) < len(message_bytes(Frame(0, [array]))):
        data += (piece := next(pieces))
        assert 0 < len(piece) <= 1000
    assert data == message_bytes(Frame(0, [array]))
    thread.join(5)
    sender.close()
    assert next(pieces, None) is None
    sender.start(iter(()), lambda: None)


def test_receive_continues_after_a_timeout_within_a_message():
    first, *rest = message_bytes(Frame(0, ["x" * 100]))[:120], message_bytes(Frame(0, ["x" * 100]))
    more: queue.Queue[bytes] = queue.Queue()
    reader = GrpcConnection("the peer")
    reader.start(iter(more.get, b""), lambda: more.put(b""))
    more.put(first)
    with pytest.raises(TimeoutError, match="no whole message in time"):
        reader.receive(0.05)
    more.put(rest[0][120:])
    assert _frame(reader).elements == ["x" * 100]
    more.put(b"")
    reader.close()


BAD = {
    "not a message": [b"GET / HTTP/1.1\r\n\r\n"],
    "a header of 2^32 bytes": [PREFIX.pack(b"stk1", 2**32 - 1, 0)],
    "a body of 2^60 bytes": [PREFIX.pack(b"stk1", 0, 2**60)],
    "a header of garbage": [PREFIX.pack(b"stk1", 2, 0) + b"\xc1\xc1"],
    "more body than announced": [PREFIX.pack(b"stk1", 0, 2) + b"abc"],
    "a piece more than the body": [PREFIX.pack(b"stk1", 0, 2) + b"a", b"bc"],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bytes_close_the_connection_and_name_the_peer(name):
    reader = _Reader(*BAD[name])
    with pytest.raises(WireError, match="the peer sent what is not a message"):
        reader.receive(5)
    assert reader.closed


HALF = {
    "no piece": [],
    "an empty piece": [b""],
    "half a prefix": [b"stk1"],
    "half a header": [PREFIX.pack(b"stk1", 2, 0) + b"1"],
    "half a body": [message_bytes(Frame(0, ["x" * 100]))[:100]],
}


@pytest.mark.parametrize("name", HALF)
def test_end_within_a_message_is_a_disconnect(name):
    reader = _Reader(*HALF[name])
    with pytest.raises(UnavailableError, match="the peer disconnected: it closed the connection"):
        reader.receive(5)
    reader.close()


def test_piece_above_the_listeners_limit_ends_only_its_call(monkeypatch):
    monkeypatch.setattr(module, "_CLIENT_PIECE_BYTES", 64 * MIB)
    with connected(GRPC) as pair:
        # While `far` receives nothing, bytes collect in the sender's buffer and form one piece.
        frame = Frame(0, [np.zeros(MAX_LISTENER_BYTES // 16)])
        with pytest.raises(UnavailableError, match="RESOURCE_EXHAUSTED"):
            _repeat(partial(pair.near.send, frame))
        with pytest.raises(UnavailableError, match="disconnected"):
            _repeat(partial(pair.far.receive, 5))
        GRPC.connect(pair.listener.address, 5).close()


@given(st.lists(st.binary(max_size=100), max_size=4), st.booleans())
@settings(max_examples=100)
def test_arbitrary_pieces_end_in_an_error_or_a_message(noise, after_a_prefix):
    if after_a_prefix:
        noise = [PREFIX.pack(b"stk1", len(part) // 2, 10) + part for part in noise]
    reader = _Reader(*noise)
    with contextlib.suppress(StokerError):
        while True:
            reader.receive(5)
    reader.close()


# ── other programs ───────────────────────────────────────────────────────────────────────────────
def test_tcp_connection_without_a_call_is_closed(monkeypatch):
    short = {"grpc.server_handshake_timeout_ms": 50, "grpc.max_connection_idle_ms": 50}
    monkeypatch.setattr(module, "_OPTIONS", list({**dict(module._OPTIONS), **short}.items()))
    listener = GRPC.listen("127.0.0.1", 0, lambda connection: None)
    host, _, port = listener.address.rpartition(":")
    with socket.create_connection((host, int(port))) as plain:
        plain.settimeout(10)
        while plain.recv(4096):
            pass  # the server's HTTP/2 settings, then end of file
    listener.close()


def test_server_of_another_protocol_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            plain, _ = listening.accept()
            plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            plain.close()

        thread = threading.Thread(target=answer)
        thread.start()
        port = listening.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"cannot connect to 127.0.0.1:{port} by gRPC"):
            GRPC.connect(f"127.0.0.1:{port}", 5)
        thread.join(5)


def test_silent_server_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(UnavailableError, match="in time"):
            GRPC.connect(f"127.0.0.1:{port}", 0.05)


def test_connection_without_a_free_descriptor_is_unavailable(monkeypatch):
    def socketpair():
        raise OSError(errno.EMFILE, "Too many open files")

    listener = GRPC.listen("127.0.0.1", 0, lambda connection: None)
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socketpair", socketpair)
        with pytest.raises(UnavailableError, match="Too many open files"):
            GRPC.connect(listener.address, 5)
    GRPC.connect(listener.address, 5).close()
    listener.close()


class _Bytes(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message, message_type):
        return bytes(message)

    def decode(self, data, message_type):
        return data


def _method(channel: Channel) -> Any:
    return StreamStreamMethod(channel, GRPC_PATH, None, None)  # type: ignore[arg-type]


def test_client_of_another_grpc_library_is_served():
    elements = [np.arange(PIECE_BYTES), "x"]

    accepted: queue.Queue[Connection] = queue.Queue()

    def serve():
        connection = accepted.get(timeout=5)
        assert connection.receive(5) == Credit(1, 2, 3)
        connection.send(Frame(0, elements))

    async def ask(host, port):
        received = b""
        async with (
            Channel(host, port, codec=_Bytes()) as channel,
            _method(channel).open() as stream,
        ):
            await stream.send_message(message_bytes(Credit(1, 2, 3)))
            assert await stream.recv_message() == b""
            while len(received) < len(message_bytes(Frame(0, elements))):
                received += await stream.recv_message()
            await stream.end()
        return received

    listener = GRPC.listen("127.0.0.1", 0, accepted.put)
    host, _, port = listener.address.rpartition(":")
    server = threading.Thread(target=serve)
    server.start()
    received = asyncio.run(asyncio.wait_for(ask(host, int(port)), 20))
    server.join(5)
    assert received == message_bytes(Frame(0, elements))
    listener.close()


# ── the extra ────────────────────────────────────────────────────────────────────────────────────
_WITHOUT_GRPCIO = """
import sys
sys.modules["grpc"] = None  # importing it fails as if it were not installed
import stoker
from stoker.service import WorkerConfig, from_dataset_id

address, grpc = "localhost:1", {"data_transfer_protocol": "grpc"}
for name in (
    lambda: stoker.Dataset.range(3).distribute(address, **grpc),
    lambda: from_dataset_id("parallel_epochs", address, "1", **grpc),
    lambda: WorkerConfig(dispatcher_address=address, **grpc),
):
    try:
        name()
    except stoker.errors.InvalidArgumentError as error:
        print(error)
with stoker.LocalCluster(num_workers=1, threads=True) as cluster:
    by_tcp = stoker.Dataset.range(5).distribute(cluster, data_transfer_protocol="tcp")
    print(sorted(by_tcp))
"""


def test_naming_grpc_without_grpcio_is_one_error():
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_GRPCIO], capture_output=True, text=True, check=True
    )
    error = (
        "`data_transfer_protocol='grpc'` needs grpcio; install it with `pip install 'stoker[grpc]'`"
    )
    assert done.stdout.splitlines() == [error] * 3 + ["[0, 1, 2, 3, 4]"]
