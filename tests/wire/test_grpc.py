"""Messages in gRPC calls: what every transport must do is in test_transports.py."""

import asyncio
import contextlib
import itertools
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from grpclib.client import Channel, StreamStreamMethod
from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.server import Server
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import StokerError, UnavailableError, WireError
from stoker.wire.frames import Credit, Frame, Ready
from stoker.wire.transports import Connection
from stoker.wire.transports.grpc import GRPC, GrpcTransport, http2
from stoker.wire.transports.grpc import call as call_module
from stoker.wire.transports.grpc.call import PATH, Call
from stoker.wire.transports.grpc.connection import GrpcConnection
from stoker.wire.transports.tcp import MAX_LISTENER_BYTES
from tests.wire.elements import exact, message_bytes
from tests.wire.pairs import connected, meets

SETTINGS = http2.settings({})
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    (":authority", "worker"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


def call(headers=REQUEST, stream=1, flags=0):
    return http2.HeaderCodec().encode(stream, headers, flags)


OPENING = http2.PREFACE + SETTINGS + call()


def data(payload, flags=0, stream=1):
    return http2.frame(http2.DATA, flags, stream, payload)


def in_a_message(payload):
    return data(http2.MESSAGE_PREFIX.pack(0, len(payload)) + payload)


@pytest.fixture
def raw():
    """A plain socket, and the server's connection on its other end; no call was begun."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        plain = socket.socket()
        # Little waits in the kernel. Made smaller once connected, TCP would stall for seconds.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        plain.connect(listening.getsockname())
        ours, _ = listening.accept()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    connection = GrpcConnection(ours, "the peer", MAX_LISTENER_BYTES)
    yield plain, connection
    plain.close()
    connection.close()


def _call(connection: Connection) -> Call:
    assert isinstance(connection, GrpcConnection)
    return connection._call


def _frame(connection: Connection) -> Frame:
    message = connection.receive(20)
    assert isinstance(message, Frame)
    return message


def soon():
    return time.monotonic() + 5


# ── large, slow, broken ──────────────────────────────────────────────────────────────────────────
def test_a_frame_of_100_megabytes_arrives():
    array = np.arange(100_000_000 // 8)
    with connected(GRPC) as pair:
        sender = threading.Thread(target=pair.far.send, args=(Frame(0, [array, "x"]),))
        sender.start()
        frame = pair.near.receive(30)
        sender.join(5)
        assert isinstance(frame, Frame)
        np.testing.assert_array_equal(frame.elements[0], array)
        assert frame.elements[1] == "x"


def test_a_slow_reader_stops_the_sender_until_it_reads():
    with connected(GRPC) as pair:
        sent = []

        def send():
            for number in range(300):
                pair.far.send(Frame(number, [np.zeros(1 << 17)]))  # 1 MiB
                sent.append(number)

        sender = threading.Thread(target=send)
        sender.start()
        outflow = _call(pair.far)._outflow
        assert meets(lambda: outflow.shut or outflow._wire.locked())
        for number in range(300):
            # What is under way is the window, one frame, and what the kernel keeps.
            assert len(sent) - number < 64 + 2 + 16
            assert _frame(pair.near).number == number
        sender.join(5)


@pytest.fixture
def narrow(monkeypatch):
    """Windows so small that they are shut most of the time."""
    monkeypatch.setattr(call_module, "WINDOW", 1 << 16)
    monkeypatch.setitem(call_module._SETTINGS, http2.INITIAL_WINDOW_SIZE, 1 << 16)
    monkeypatch.setattr(call_module, "_WINDOW_UPDATE", b"")


def test_a_sender_on_whose_side_nobody_receives_reads_its_window_itself(narrow):
    with connected(GRPC) as pair:
        pair.near.send(Ready(1))
        sender = threading.Thread(target=pair.far.send, args=(Frame(0, [np.arange(1 << 20)]),))
        sender.start()
        frame = _frame(pair.near)
        np.testing.assert_array_equal(frame.elements[0], np.arange(1 << 20))
        sender.join(5)
        assert pair.far.receive(5) == Ready(1)


def test_both_send_more_than_their_windows_while_both_receive(narrow):
    def send(connection, count):
        for number in range(count):
            connection.send(Frame(number, [np.full(30_000, number)]))

    with connected(GRPC) as pair:
        senders = [threading.Thread(target=send, args=(each, 50)) for each in pair.both]
        for sender in senders:
            sender.start()
        for number in range(50):
            for each in pair.both:
                frame = _frame(each)
                assert frame.number == number
                assert (frame.elements[0] == number).all()
        for sender in senders:
            sender.join(5)


def test_close_wakes_a_sender_whose_window_is_shut(narrow):
    with connected(GRPC) as pair:
        outcome: queue.Queue[str] = queue.Queue()

        def send():
            try:
                pair.far.send(Frame(0, [np.zeros(1 << 20)]))
            except UnavailableError as error:
                outcome.put(str(error))

        sender = threading.Thread(target=send)
        sender.start()
        assert meets(lambda: _call(pair.far)._outflow.shut)
        pair.far.close()
        assert "was closed on this side" in outcome.get(timeout=5)
        sender.join(5)


def test_a_peer_that_goes_wakes_a_sender_whose_window_is_shut(narrow):
    with connected(GRPC) as pair:
        outcome: queue.Queue[str] = queue.Queue()

        def send():
            try:
                pair.far.send(Frame(0, [np.zeros(1 << 20)]))
            except UnavailableError as error:
                outcome.put(str(error))

        sender = threading.Thread(target=send)
        sender.start()
        assert meets(lambda: _call(pair.far)._outflow.shut)
        pair.near.close()
        assert "is gone" in outcome.get(timeout=5)
        sender.join(5)


_PEER = """
import sys
from stoker.wire.frames import Ready
from stoker.wire.transports import Connection
from stoker.wire.transports.grpc import GRPC
connection = GRPC.connect(sys.argv[1], 5)
connection.send(Ready(1))
connection.receive()
"""


def test_a_killed_peer_is_unavailable_and_named():
    accepted: queue.Queue[Connection] = queue.Queue()
    listener = GRPC.listen("127.0.0.1", 0, accepted.put)
    with subprocess.Popen([sys.executable, "-c", _PEER, listener.address]) as process:
        connection = accepted.get(timeout=30)
        assert connection.receive(30) == Ready(1)
        process.send_signal(signal.SIGKILL)
        with pytest.raises(UnavailableError, match=rf"^{connection.peer} is gone"):
            connection.receive(5)
        with pytest.raises(UnavailableError, match="is gone"):
            connection.send(Ready(1))
    listener.close()


def test_bytes_that_come_one_by_one_make_the_same_messages(raw):
    plain, connection = raw
    elements = [{"a": np.arange(300), "b": "x"}]
    stream = message_bytes(Ready(1)) + message_bytes(Frame(0, elements)) + message_bytes(Ready(2))
    cut = itertools.cycle((1, 7, 100, 16))
    frames, rest = [], stream
    while rest:
        size = next(cut)
        frames.append(in_a_message(rest[:size]))
        rest = rest[size:]
    everything = OPENING + b"".join(frames)

    def trickle():
        for at in range(len(everything)):
            plain.sendall(everything[at : at + 1])

    sender = threading.Thread(target=trickle)
    sender.start()
    connection.accept_call(soon())
    assert connection.receive(5) == Ready(1)
    frame = _frame(connection)
    assert list(map(exact, frame.elements)) == list(map(exact, elements))
    assert connection.receive(5) == Ready(2)
    sender.join(5)


def test_padding_trailers_and_frames_nobody_knows_are_passed_over(raw):
    plain, connection = raw
    message = message_bytes(Ready(5))
    prefix = http2.MESSAGE_PREFIX.pack(0, len(message))
    padded = bytes([3]) + prefix + message[:5] + bytes(3)
    plain.sendall(
        OPENING
        + data(padded, http2.PADDED)
        + http2.frame(http2.PING, 0, 0, bytes(8))
        + http2.frame(77, 0, 9, b"?")
        + http2.frame(http2.PRIORITY, 0, 1, bytes(5))
        + data(b"")
        + data(message[5:])
        + data(b"other", stream=3)
        + call([("grpc-status", "0")], flags=http2.END_STREAM)
    )
    connection.accept_call(soon())
    assert connection.receive(5) == Ready(5)
    with pytest.raises(UnavailableError, match="it closed the connection"):
        connection.receive(5)


def test_headers_in_pieces_begin_a_call(raw):
    plain, connection = raw
    block = call()[http2.FRAME_HEADER_BYTES :]
    pieces = [block[at : at + 10] for at in range(0, len(block), 10)]
    first, *middle, last = pieces
    plain.sendall(http2.PREFACE + SETTINGS + http2.frame(http2.HEADERS, 0, 7, first))
    for piece in middle:
        plain.sendall(http2.frame(http2.CONTINUATION, 0, 7, piece))
    plain.sendall(http2.frame(http2.CONTINUATION, http2.END_HEADERS, 7, last))
    plain.sendall(data(http2.MESSAGE_PREFIX.pack(0, 0), stream=7))
    plain.sendall(http2.frame(http2.RST_STREAM, 0, 7, bytes([0, 0, 0, 8])))
    connection.accept_call(soon())
    with pytest.raises(UnavailableError, match="it reset the stream, code 8"):
        connection.receive(5)


# ── bad input ────────────────────────────────────────────────────────────────────────────────────
NO_CALLS = {
    "HTTP/1": b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n",
    "stoker's own protocol": message_bytes(Ready(1)),
    "no settings": http2.PREFACE + call(),
    "half settings": http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, bytes(5)),
    "frames of no size": http2.PREFACE + http2.settings({http2.MAX_FRAME_SIZE: 1}),
    "an endless window": http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 2**31}),
    "another path": http2.PREFACE + SETTINGS + call([*REQUEST, (":path", "/other.Service/Call")]),
    "another content": http2.PREFACE + SETTINGS + call([*REQUEST, ("content-type", "text/html")]),
    "a server's stream": http2.PREFACE + SETTINGS + call(stream=2),
    "data first": http2.PREFACE + SETTINGS + data(b"x"),
    "no headers": http2.PREFACE + SETTINGS + http2.frame(http2.HEADERS, 4, 1, b"\xff" * 20),
    "a continuation of nothing": http2.PREFACE + SETTINGS + http2.frame(http2.CONTINUATION, 4, 1),
    "headers interrupted": http2.PREFACE
    + SETTINGS
    + http2.frame(http2.HEADERS, 0, 1, b"")
    + http2.frame(http2.PING, 0, 0, bytes(8)),
    "headers without end": http2.PREFACE
    + SETTINGS
    + http2.frame(http2.HEADERS, 0, 1, b"")
    + http2.frame(http2.CONTINUATION, 0, 1, bytes(16_000)) * 5,
    "headers that are padding": http2.PREFACE
    + SETTINGS
    + http2.frame(http2.HEADERS, 4 | http2.PADDED, 1, b"\xff123"),
    "a huge frame": http2.PREFACE + SETTINGS + http2.frame_header(2**24 - 1, http2.HEADERS, 0, 1),
}


@pytest.mark.parametrize("name", NO_CALLS)
def test_what_is_no_call_is_refused(raw, name):
    plain, connection = raw
    plain.sendall(NO_CALLS[name])
    with pytest.raises(WireError):
        connection.accept_call(soon())


AFTER_A_CALL = {
    "no message": in_a_message(b"GET / HTTP/1.1\r\n"),
    "a compressed message": data(http2.MESSAGE_PREFIX.pack(1, 100) + bytes(100)),
    "a header of 2^32 bytes": in_a_message(b"stk1" + b"\xff" * 4 + bytes(8)),
    "a body of 2^60 bytes": in_a_message(b"stk1" + bytes(4) + (2**60).to_bytes(8, "little")),
    "more padding than data": data(b"\xff", http2.PADDED),
    "padding of nothing": data(b"\x01", http2.PADDED),
    "data of 16 MiB": http2.frame_header(2**24 - 1, http2.DATA, 0, 1),
    "a push": http2.frame(http2.PUSH_PROMISE, 4, 1, bytes(4)),
    "a window that grows by nothing": http2.window_update(0, 0),
    "a window without number": http2.frame(http2.WINDOW_UPDATE, 0, 1, b"1"),
    "too large a window": http2.window_update(1, 2**31 - 1),
    "no settings": http2.frame(http2.SETTINGS, 0, 0, b"1"),
}


@pytest.mark.parametrize("name", AFTER_A_CALL)
def test_what_is_no_message_closes_the_connection_and_names_the_peer(raw, name):
    plain, connection = raw
    plain.sendall(OPENING + AFTER_A_CALL[name])
    connection.accept_call(soon())
    with pytest.raises(WireError, match="the peer sent what is not a message"):
        connection.receive(5)
    assert connection.closed


def test_a_peer_that_asks_for_answers_and_reads_none_is_refused(raw):
    plain, connection = raw
    plain.sendall(OPENING)
    connection.accept_call(soon())
    outcome: queue.Queue[Exception] = queue.Queue()

    def receive():
        try:
            connection.receive()
        except StokerError as error:
            outcome.put(error)

    receiver = threading.Thread(target=receive)
    receiver.start()
    pings = http2.frame(http2.PING, 0, 0, bytes(8)) * 4000
    with contextlib.suppress(OSError):
        while outcome.empty():
            plain.sendall(pings)
    assert isinstance(outcome.get(timeout=5), WireError)
    receiver.join(5)


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_bytes_end_in_an_error_or_a_message(noise, in_a_call):
    near, far = socket.socketpair()
    connection = GrpcConnection(far, "the peer", MAX_LISTENER_BYTES)
    near.sendall((OPENING if in_a_call else http2.PREFACE + SETTINGS) + noise)
    near.shutdown(socket.SHUT_WR)
    with contextlib.suppress(StokerError):
        connection.accept_call(soon())
        while True:
            connection.receive(5)
    near.close()
    connection.close()


def test_a_client_that_does_not_call_is_closed_with_one_warning(caplog):
    listener = GrpcTransport(call_seconds=0.05).listen("127.0.0.1", 0, lambda connection: None)
    host, _, port = listener.address.rpartition(":")
    with socket.create_connection((host, int(port))) as plain:
        plain.settimeout(5)
        while plain.recv(4096):
            pass  # its settings, then the end
    assert meets(lambda: len(caplog.records) == 1)
    assert "is closed" in caplog.text
    assert caplog.records[0].levelname == "WARNING"
    listener.close()


def test_a_server_that_speaks_something_else_is_unavailable():
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


def test_a_server_that_does_not_answer_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(UnavailableError, match="in time"):
            GRPC.connect(f"127.0.0.1:{port}", 0.05)


# ── other implementations ────────────────────────────────────────────────────────────────────────
class _Bytes(CodecBase):
    __content_subtype__ = "stoker"

    def encode(self, message, message_type):
        return bytes(message)

    def decode(self, data, message_type):
        return data


def _method(channel: Channel) -> Any:
    return StreamStreamMethod(channel, PATH, None, None)  # type: ignore[arg-type]


ELEMENTS = [np.arange(1_000_000), "x"]  # 8 MB: hundreds of the other's windows and frames


def test_a_client_of_another_implementation_is_served():
    def serve(connection):
        assert connection.receive(5) == Credit(1, 2, 3)
        connection.send(Frame(0, ELEMENTS))
        connection.receive(5)

    async def ask(host, port):
        received = b""
        async with (
            Channel(host, port, codec=_Bytes()) as channel,
            _method(channel).open() as stream,
        ):
            await stream.send_message(message_bytes(Credit(1, 2, 3)))
            while len(received) < len(message_bytes(Frame(0, ELEMENTS))):
                received += await stream.recv_message()
            await stream.end()
        return received

    listener = GRPC.listen("127.0.0.1", 0, serve)
    host, _, port = listener.address.rpartition(":")
    received = asyncio.run(asyncio.wait_for(ask(host, int(port)), 20))
    assert received == message_bytes(Frame(0, ELEMENTS))
    listener.close()


class _Echo:
    """Sends back what it gets."""

    async def serve(self, stream):
        await stream.send_initial_metadata()
        while (message := await stream.recv_message()) is not None:
            await stream.send_message(message)

    def __mapping__(self):
        return {PATH: Handler(self.serve, Cardinality.STREAM_STREAM, None, None)}


@contextlib.contextmanager
def echoing():
    """The port of an echo served by grpclib."""
    ports: queue.Queue[int] = queue.Queue()
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def run():
        server = Server([_Echo()], codec=_Bytes())
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await server.start(sock=listening)
            ports.put(listening.getsockname()[1])
            await done.wait()
            server.close()
            await server.wait_closed()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        yield ports.get(timeout=5)
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)
        loop.close()


def test_a_server_of_another_implementation_is_understood():
    with echoing() as port:
        connection = GRPC.connect(f"127.0.0.1:{port}", 5)
        connection.send(Ready(3))
        assert connection.receive(5) == Ready(3)
        sender = threading.Thread(target=connection.send, args=(Frame(0, ELEMENTS),))
        sender.start()
        frame = _frame(connection)
        assert list(map(exact, frame.elements)) == list(map(exact, ELEMENTS))
        sender.join(5)
        connection.close()
