"""Channels: messages of connections that no thread waits for."""

import contextlib
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stoker.errors import InvalidArgumentError, UnavailableError, WireError
from stoker.wire.frames import Bye, Credit, Frame, Message, Ready, encode
from stoker.wire.transports import Connection, Transport, get_transport
from stoker.wire.transports.channel import Channel
from stoker.wire.transports.poller import Poller
from stoker.wire.transports.tcp import TcpConnection
from tests.wire.pairs import connected, meets

NAMES = ("grpc", "local", "memory", "tcp", *(["shm"] if sys.platform == "linux" else []))
SOCKETS = [name for name in NAMES if name in ("shm", "tcp")]
DEADLINE = 10.0


class Served:
    """A channel at the worker's end, with what it received, and the client's end."""

    def __init__(self, near: Connection, far: Connection, poller: Poller) -> None:
        self.near = near
        self.received: queue.Queue[Message] = queue.Queue()
        self.ends: queue.Queue[BaseException | None] = queue.Queue()
        self.react: Callable[[Message], None] = lambda message: None
        self.channel = Channel(far, poller, self._receive, self.ends.put)

    def _receive(self, message: Message) -> None:
        self.received.put(message)
        self.react(message)

    def send(self, *messages: Message | None) -> None:
        for message in messages:
            self.channel.put(message)
        self.channel.flush()


@contextlib.contextmanager
def serving(transport: Transport, threads: int = 2) -> Iterator[Served]:
    poller = Poller("test-poll", threads)
    try:
        with connected(transport) as pair:
            served = Served(pair.near, pair.far, poller)
            served.channel.start()
            yield served
            served.channel.close()
    finally:
        poller.close()


@pytest.fixture(params=NAMES)
def served(request):
    with serving(get_transport(request.param)) as served:
        yield served


def test_messages_arrive_in_order_both_ways(served: Served):
    for n in range(100):
        served.near.send(Credit(n, 0, 0))
        served.send(Ready(n))
    assert [served.received.get(timeout=DEADLINE) for _ in range(100)] == [
        Credit(n, 0, 0) for n in range(100)
    ]
    assert [served.near.receive(DEADLINE) for _ in range(100)] == [Ready(n) for n in range(100)]


def test_frames_that_have_to_wait_block_no_caller(served: Served):
    frames = [Frame(n, [np.full(1 << 20, n)]) for n in range(4)]
    served.send(*frames)  # would not return if it waited: nobody receives
    for n in range(4):
        got = served.near.receive(DEADLINE)
        assert isinstance(got, Frame)
        assert got.number == n
        assert (got.elements[0] == n).all()


def test_messages_of_many_threads_are_all_sent_in_order(served: Served):
    lock = threading.Lock()
    count = iter(range(1 << 30))

    def put() -> None:
        for _ in range(100):
            with lock:  # like the worker's: it makes the order of the messages that of the puts
                n = next(count)
                served.channel.put(Frame(n, [np.full(3_000 if n % 7 else 100_000, n)]))
            served.channel.flush()

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(400):
        got = served.near.receive(DEADLINE)
        assert isinstance(got, Frame)
        assert (got.number, got.elements[0][-1]) == (n, n)
    for thread in threads:
        thread.join()


def test_none_closes_after_the_messages_before_it(served: Served):
    served.send(Frame(0, [np.zeros(1 << 20)]), Bye(), None)
    assert isinstance(served.near.receive(DEADLINE), Frame)
    assert served.near.receive(DEADLINE) == Bye()
    with pytest.raises(UnavailableError, match="disconnected"):
        served.near.receive(DEADLINE)
    assert served.ends.get(timeout=DEADLINE) is None
    assert served.channel.connection.closed


def test_peers_close_ends_the_channel_after_its_messages(served: Served):
    served.near.send(Ready(1))
    served.near.close()
    assert served.received.get(timeout=DEADLINE) == Ready(1)
    error = served.ends.get(timeout=DEADLINE)
    assert isinstance(error, UnavailableError)
    assert "disconnected" in str(error)
    served.send(Ready(2))
    assert served.ends.empty()


def test_unencodable_frame_ends_the_connection_with_bye():
    with serving(get_transport("tcp")) as served:
        served.send(Frame(0, [object()]), Ready(1))
        got = served.near.receive(DEADLINE)
        assert isinstance(got, Bye)
        assert got.error is not None
        assert got.error.code == "InvalidArgumentError"
        with pytest.raises(UnavailableError):
            served.near.receive(DEADLINE)
        assert served.ends.get(timeout=DEADLINE) is None


def test_exception_of_the_receiver_ends_only_that_channel(served: Served):
    def react(message: Message) -> None:
        raise InvalidArgumentError("no such task")

    served.react = react
    served.near.send(Ready(1))
    error = served.ends.get(timeout=DEADLINE)
    assert isinstance(error, InvalidArgumentError)
    with pytest.raises(UnavailableError):
        served.near.receive(DEADLINE)


def test_close_by_the_receiver_is_not_reported_as_an_end(served: Served):
    served.react = lambda message: served.channel.close()
    served.near.send(Ready(1))
    with pytest.raises(UnavailableError):
        served.near.receive(DEADLINE)
    assert served.channel.connection.closed
    assert served.ends.empty()


# ── raw sockets ──────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def raw():
    """A plain socket, and a channel of one polling thread at the other end of it."""
    poller = Poller("test-poll")
    plain, theirs = socket.socketpair()
    received: queue.Queue[Message] = queue.Queue()
    ends: queue.Queue[Any] = queue.Queue()
    channel = Channel(TcpConnection(theirs, "the peer"), poller, received.put, ends.put)
    channel.start()
    with plain:
        yield plain, channel, received, ends
        channel.close()
        poller.close()


def test_bytes_that_are_no_message_end_the_channel(raw):
    plain, _, _, ends = raw
    plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert isinstance(ends.get(timeout=DEADLINE), WireError)


def test_peer_that_stalls_in_a_body_holds_up_nobody():
    poller = Poller("test-poll", 1)
    tcp = get_transport("tcp")
    with connected(tcp) as slow, connected(tcp) as other:
        ours: list[Served] = []
        for pair in (slow, other):
            served = Served(pair.far, pair.near, poller)
            served.channel.start()
            ours.append(served)
        # Half a body, and then nothing.
        data = b"".join(encode(Frame(0, [np.zeros(4 << 20)])))
        sock = slow.far._stream._socket  # type: ignore[attr-defined]
        sock.sendall(data[: 1 << 20])
        other.far.send(Frame(1, [np.ones(1 << 16)]))
        got = ours[1].received.get(timeout=DEADLINE)
        assert isinstance(got, Frame)
        assert got.number == 1
        assert ours[0].received.empty()
        sock.sendall(data[1 << 20 :])
        got = ours[0].received.get(timeout=DEADLINE)
        assert isinstance(got, Frame)
        assert got.elements[0].nbytes == 32 << 20
        for served in ours:
            served.channel.close()
    poller.close()


# ── one thread at a time ─────────────────────────────────────────────────────────────────────────
class WatchedSocket:
    """Counts the calls that overlap with another, as an `ssl.SSLSocket` must not be used."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._inside = threading.Lock()
        self.calls = self.overlaps = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._socket, name)
        if not callable(found) or name == "fileno":
            return found

        def call(*arguments: Any) -> Any:
            if not self._inside.acquire(blocking=False):
                self.overlaps += 1
                return found(*arguments)
            try:
                self.calls += 1
                return found(*arguments)
            finally:
                self._inside.release()

        return call


@pytest.mark.parametrize("name", SOCKETS)
def test_no_two_threads_use_one_socket_at_once(name):
    poller = Poller("test-poll", 3)
    with connected(get_transport(name)) as pair:
        far: Any = pair.far
        watched = WatchedSocket(far._stream._socket)
        far._stream._socket = watched
        served = Served(pair.near, pair.far, poller)
        served.react = served.send
        served.channel.start()

        def flood() -> None:
            for n in range(200):
                served.send(Frame(n, [np.zeros(20_000 if n % 20 else 400_000)]))

        def ask() -> None:
            for n in range(200):
                served.near.send(Credit(n, 0, 0))

        threads = [threading.Thread(target=each) for each in (flood, flood, ask)]
        for thread in threads:
            thread.start()
        got = [pair.near.receive(DEADLINE) for _ in range(600)]
        for thread in threads:
            thread.join()
        assert sum(isinstance(each, Credit) for each in got) == 200
        closers = [threading.Thread(target=served.channel.close) for _ in range(4)]
        for thread in closers:
            thread.start()
        for thread in closers:
            thread.join()
        assert meets(lambda: pair.far.closed)
        assert watched.calls > 600
        assert watched.overlaps == 0
    poller.close()
