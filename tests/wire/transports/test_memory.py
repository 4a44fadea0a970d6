import threading

import pytest

from stoker.errors import UnavailableError
from stoker.wire.frames import Frame, Ready
from stoker.wire.transports.memory import MemoryTransport
from tests.wire.elements import Point
from tests.wire.pairs import connected


def test_elements_are_encoded_and_not_handed_over():
    with connected(MemoryTransport()) as pair:
        element = [Point(1, 2)]
        pair.near.send(Frame(0, [element]))
        received = pair.far.receive(5)
        assert isinstance(received, Frame)
        assert received.elements[0] == element
        assert received.elements[0] is not element
        assert type(received.elements[0][0]) is not Point


def test_broken_connections_lose_messages_and_wake_both_sides():
    transport = MemoryTransport()
    with connected(transport) as pair:
        outcome = []

        def receive():
            try:
                pair.near.receive()
            except UnavailableError as error:
                outcome.append(str(error))

        waiting = threading.Thread(target=receive)
        waiting.start()
        pair.near.send(Ready(1))
        transport.break_connections()
        waiting.join(5)
        assert len(outcome) == 1
        assert outcome[0].endswith("disconnected: the connection broke")
        with pytest.raises(UnavailableError, match="the connection broke"):
            pair.far.receive(5)
        with pytest.raises(UnavailableError, match="the connection broke"):
            pair.far.send(Ready(1))


def test_a_listener_outlives_its_broken_connections():
    transport = MemoryTransport()
    with connected(transport) as pair:
        transport.break_connections()
        again = transport.connect(pair.listener.address, 5)
        again.send(Ready(1))
        again.close()


def test_a_port_is_taken_once():
    transport = MemoryTransport()
    listener = transport.listen("worker", 7, lambda connection: None)
    assert listener.address == "worker:7"
    with pytest.raises(UnavailableError, match="worker:7: it is taken"):
        transport.listen("worker", 7, lambda connection: None)
    listener.close()
    transport.listen("worker", 7, lambda connection: None).close()


def test_ports_that_are_taken_are_not_given_out():
    transport = MemoryTransport()
    first = transport.listen("worker", 1, lambda connection: None)
    second = transport.listen("worker", 0, lambda connection: None)
    assert second.address == "worker:2"
    first.close()
    second.close()
