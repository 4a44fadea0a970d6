"""Many clients of a worker and many workers of a trainer need few threads."""

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import stoker
from stoker.elements.codec.elements import TypeResolver
from stoker.service import messages as m
from stoker.service.client.connections.connections import DIALING_THREADS, WorkerConnections
from stoker.service.client.connections.route import Route
from stoker.service.worker.readers.data_connections import POLLING_THREADS
from stoker.wire import frames as f
from stoker.wire.transports import Connection, Listener, get_transport
from stoker.wire.transports.channel import Channel
from stoker.wire.transports.poller import Poller
from tests.serving import Service, eventually, read

CLIENTS = 1_000
WORKERS = 128


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


def _hello(task_id: int, client_id: int) -> bytes:
    first, *_ = f.encode(f.Hello(1, 1, client_id, task_id, 0))
    return bytes(first)


@pytest.mark.parametrize("greets", [True, False])
def test_thousand_clients_of_a_worker_need_no_thread_each(greets: bool) -> None:
    with Service(1) as service, contextlib.ExitStack() as stack:
        before = _threads()
        assert before.count("stoker-poll") == POLLING_THREADS
        host, port = service.workers[0].address.rsplit(":", 1)
        for number in range(CLIENTS):
            client = stack.enter_context(socket.create_connection((host, int(port)), 10))
            if greets:
                client.sendall(_hello(task_id=1 << 40, client_id=number))
        shell: Any = service.workers[0]._shell
        connections = shell._connections
        known = connections._channels if greets else connections._greeting
        assert eventually(lambda: len(known) == CLIENTS)
        assert _threads() == before
        assert read(stoker.Dataset.range(100).distribute(service.target)) == list(range(100))


class _Workers:
    """Listeners of many workers in one process, on one poller, which send one frame each."""

    def __init__(self) -> None:
        self._poller = Poller("fake-workers")
        self._listeners: list[Listener] = []
        self.tasks: list[m.TaskInfo] = []
        for number in range(WORKERS):
            listener = get_transport("tcp").listen("127.0.0.1", 0, self._accept, 10, self._poller)
            self._listeners.append(listener)
            self.tasks.append(m.TaskInfo(number, listener.address, {"tcp": listener.address}))

    def _accept(self, connection: Connection) -> None:
        def answer(message: f.Message) -> None:
            assert isinstance(message, f.Hello)
            channel.put(f.Frame(message.task_id, [message.task_id]))
            channel.flush()

        channel = Channel(connection, self._poller, answer, lambda error: None)
        channel.start()

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._poller.close()


def test_trainer_of_128_workers_needs_one_thread_and_some_to_dial() -> None:
    workers = _Workers()
    received: dict[int, f.Message] = {}
    most_dialing = 0

    def opened(number: int, protocol: str) -> None:
        nonlocal most_dialing
        most_dialing = max(most_dialing, _threads().count("stoker-dial"))
        connections.put(number, f.Hello(1, 1, 0, number, 0))
        connections.flush()

    before = _threads()
    connections = WorkerConnections(
        Route("tcp"), TypeResolver(), opened, received.__setitem__, lambda number, error: None
    )
    for task in workers.tasks:
        connections.connect(task.task_id, task)
    assert eventually(lambda: len(received) == WORKERS)
    assert sorted(received) == list(range(WORKERS))
    assert 1 <= most_dialing <= DIALING_THREADS
    assert eventually(lambda: _threads() == sorted([*before, "stoker-read"]))
    connections.close()
    assert _threads() == before
    workers.close()


def test_workers_that_do_not_answer_occupy_a_bounded_number_of_threads(monkeypatch) -> None:
    released = threading.Event()

    def connect(route: Route, task: m.TaskInfo, timeout: float) -> Connection:
        released.wait(10)
        raise stoker.errors.UnavailableError("nobody answers")

    monkeypatch.setattr(Route, "connect", connect)
    ended: dict[int, BaseException | None] = {}
    connections = WorkerConnections(
        Route(None), TypeResolver(), lambda *_: None, lambda *_: None, ended.__setitem__
    )
    for number in range(WORKERS):
        connections.connect(number, m.TaskInfo(number, "nowhere", {}))
    assert _threads().count("stoker-dial") == DIALING_THREADS
    connections.disconnect(WORKERS - 1)
    released.set()
    assert eventually(lambda: len(ended) == WORKERS - 1)
    assert WORKERS - 1 not in ended
    connections.close()
    assert "stoker-dial" not in _threads()


def test_close_does_not_wait_for_workers_to_be_dialed(monkeypatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(Route, "connect", lambda *_: released.wait(2))
    connections = WorkerConnections(
        Route(None), TypeResolver(), lambda *_: None, lambda *_: None, lambda *_: None
    )
    for number in range(100):
        connections.connect(number, m.TaskInfo(number, "nowhere", {}))
    timer = threading.Timer(0.05, released.set)
    timer.start()
    began = time.monotonic()
    connections.close()
    assert time.monotonic() - began < 2
    timer.join()
