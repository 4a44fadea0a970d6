"""What every transport must do."""

import queue
import sys
import threading

import numpy as np
import pytest

from stoker.errors import InvalidArgumentError, NotFoundError, UnavailableError
from stoker.wire.frames import Bye, Credit, Frame, Ready
from stoker.wire.transports import Connection, get_transport
from tests.wire.pairs import Pair, connected, meets

NAMES = ("grpc", "local", "memory", "tcp", *(["shm"] if sys.platform == "linux" else []))


@pytest.fixture(params=NAMES)
def transport(request):
    return get_transport(request.param)


@pytest.fixture
def pair(transport):
    with connected(transport) as pair:
        yield pair


def test_an_unknown_transport_is_named_with_those_that_exist():
    with pytest.raises(NotFoundError, match="'pigeon'; there are 'grpc', 'local', 'memory', 'shm'"):
        get_transport("pigeon")


def test_a_transport_is_called_what_it_was_asked_for(transport):
    assert get_transport(transport.name) is transport


def test_messages_arrive_in_order_both_ways(pair: Pair):
    for n in range(100):
        pair.near.send(Ready(n))
        pair.far.send(Credit(n, 0, 0))
    assert [pair.far.receive(5) for _ in range(100)] == [Ready(n) for n in range(100)]
    assert [pair.near.receive(5) for _ in range(100)] == [Credit(n, 0, 0) for n in range(100)]


def test_what_is_sent_now_arrives_and_what_is_not_can_be_sent(pair: Pair):
    frames = [Frame(n, [np.full(50_000, n)] * (n % 3)) for n in range(50)]
    for frame in frames:
        if not pair.far.send_now(frame):
            threading.Thread(target=pair.flush_far).start()
        got = pair.near.receive(5)
        assert isinstance(got, Frame)
        assert got.number == frame.number
        assert [array.tolist() for array in got.elements] == [[got.number] * 50_000] * len(
            frame.elements
        )


def test_sending_now_to_who_is_gone_is_an_error_or_left_to_send(pair: Pair):
    def send() -> None:
        if not pair.far.send_now(Ready(1)):
            pair.far.send(Ready(1))

    pair.far.close()
    with pytest.raises(UnavailableError):
        send()


def test_a_read_only_array_arrives_as_a_writable_copy(pair: Pair):
    array = np.zeros(100_000)
    array.flags.writeable = False
    pair.far.send(Frame(0, [{"a": array}, (array[:3],)]))
    received = pair.near.receive(5)
    assert isinstance(received, Frame)
    received.elements[0]["a"][0] = 1
    received.elements[1][0][0] = 1
    assert array[0] == 0


def test_a_receive_times_out_and_the_connection_continues(pair: Pair):
    with pytest.raises(TimeoutError, match="no"):
        pair.near.receive(0.01)
    with pytest.raises(TimeoutError):
        pair.near.receive(0)
    pair.far.send(Ready(1))
    assert pair.near.receive(5) == Ready(1)


def test_close_wakes_a_blocked_receive_on_both_sides(pair: Pair):
    outcomes: queue.Queue[str] = queue.Queue()

    def receive(connection):
        try:
            connection.receive()
        except UnavailableError as error:
            outcomes.put(str(error))

    threads = [threading.Thread(target=receive, args=(c,)) for c in (pair.near, pair.far)]
    for thread in threads:
        thread.start()
    pair.near.close()
    for thread in threads:
        thread.join(5)
    found = sorted(outcomes.get(timeout=5) for _ in threads)
    assert any("was closed on this side" in text for text in found)
    assert any("disconnected" in text for text in found)


def test_what_was_sent_before_a_close_still_arrives(pair: Pair):
    pair.near.send(Ready(1))
    pair.near.send(Bye())
    pair.near.close()
    assert [pair.far.receive(5), pair.far.receive(5)] == [Ready(1), Bye()]
    with pytest.raises(UnavailableError, match="disconnected"):
        pair.far.receive(5)


def test_a_closed_connection_refuses_both_verbs_and_closes_again(pair: Pair):
    pair.near.close()
    pair.near.close()
    assert pair.near.closed
    with pytest.raises(UnavailableError, match="closed on this side"):
        pair.near.send(Ready(1))
    with pytest.raises(UnavailableError, match="closed on this side"):
        pair.near.receive(1)


def test_sending_to_a_peer_that_closed_fails_in_the_end(pair: Pair):
    pair.far.close()

    def fails():
        try:
            pair.near.send(Ready(1))
        except UnavailableError:
            return True
        return False

    assert meets(fails)


def test_two_threads_send_and_two_receive_at_once(pair: Pair):
    received: dict[str, list] = {"near": [], "far": []}

    def send(connection, number):
        for _ in range(50):
            connection.send(Frame(number, [np.full(2000, number), "x" * number]))

    def receive(connection, name):
        received[name] = [connection.receive(10) for _ in range(100)]

    threads = [
        *(threading.Thread(target=send, args=(c, n)) for c in pair.both for n in (1, 2)),
        threading.Thread(target=receive, args=(pair.near, "near")),
        threading.Thread(target=receive, args=(pair.far, "far")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for frames in received.values():
        assert sorted(frame.number for frame in frames) == [1] * 50 + [2] * 50
        assert all((frame.elements[0] == frame.number).all() for frame in frames)


def test_closing_a_listener_closes_its_connections(transport):
    accepted: queue.Queue[Connection] = queue.Queue()
    listener = transport.listen("localhost", 0, accepted.put)
    near = transport.connect(listener.address, 5)
    near.send(Ready(1))
    far = accepted.get(timeout=5)
    assert far.receive(5) == Ready(1)
    listener.close()
    assert far.closed
    listener.close()
    with pytest.raises(UnavailableError, match="disconnected"):
        near.receive(5)
    with pytest.raises(UnavailableError, match="cannot connect to"):
        transport.connect(listener.address, 5)
    near.close()


def test_an_address_that_is_none_is_refused(transport):
    with pytest.raises((InvalidArgumentError, UnavailableError)):
        transport.connect("nowhere", 1)


def test_a_connection_whose_server_raises_is_closed(transport):
    def serve(connection):
        raise InvalidArgumentError("no such task")

    listener = transport.listen("localhost", 0, serve)
    near = transport.connect(listener.address, 5)
    with pytest.raises(UnavailableError):
        near.receive(5)
    near.close()
    listener.close()


def test_a_closed_listener_leaves_its_place_to_another(transport):
    addresses = set()
    for _ in range(3):
        listener = transport.listen("localhost", 0, lambda connection: None)
        addresses.add(listener.address)
        listener.close()
    again = transport.listen("localhost", 0, lambda connection: None)
    transport.connect(again.address, 5).close()
    again.close()
