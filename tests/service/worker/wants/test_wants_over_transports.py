"""Positions that a client wants, over real connections, of a worker with real pipelines."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.service import messages as m
from stoker.service.keys import reader_key
from stoker.service.worker import logic
from stoker.service.worker.shell import Shell
from stoker.wire import frames as f
from stoker.wire.transports import Connection, get_transport
from tests.service.worker.wants.scene import want
from tests.serving import Service, eventually

TASK, CLIENT = 1 << 40, 41


@dataclasses.dataclass
class _Client:
    """A connection to the task, with what has arrived by position."""

    connection: Connection
    found: dict[int, Any] = dataclasses.field(default_factory=dict)
    frames: int = 0

    def read_until(self, position: int) -> None:
        while position not in self.found:
            message = self.connection.receive(20)
            if isinstance(message, f.Bye):
                raise ConnectionError(message.error)
            if isinstance(message, f.Frame):
                self.frames += 1
                places = [
                    first + k * step
                    for first, count, step in message.positions
                    for k in range(count)
                ]
                values = message.elements if message.error is None else [message.error]
                assert not self.found.keys() & set(places)
                self.found |= zip(places, values, strict=True)


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(1, worker={"shutdown_quiet_period_ms": 5000}) as running:
        yield running


@pytest.fixture
def connect(service: Service) -> Iterator[Callable[..., _Client]]:
    clients: list[_Client] = []

    def make(transport: str, attempt: int = 1, client: int = CLIENT) -> _Client:
        addresses = _shell(service)._listeners.data_transfer_addresses
        connection = get_transport(transport).connect(addresses[transport], 5)
        key = reader_key(b"", client)
        connection.send(f.Hello(1, 1, client, TASK, 0, attempt=attempt, key=key, reports=True))
        assert isinstance(connection.receive(20), f.Welcome)
        clients.append(_Client(connection))
        return clients[-1]

    yield make
    for client in clients:
        client.connection.close()
        client.found.clear()  # shared memory


def _shell(service: Service) -> Shell:
    shell = service.workers[0]._shell
    assert shell is not None
    return shell


def _start(service: Service, dataset: stoker.Dataset, length: int, task: int = TASK) -> None:
    """Start a task by position as a dispatcher does."""
    dataset_id = stoker.service.register_dataset(service.target, dataset)
    mode = m.PositionTask(length=length)
    start = m.TaskStart(task, 1, dataset_id, 7, (0,), mode)
    _shell(service).call(logic.Worker.session_message, start, time.monotonic())


@pytest.mark.parametrize("transport", ["tcp", "shm", "local"])
def test_elements_arrive_over_each_transport(service, connect, transport):
    dataset = stoker.Dataset.range(6400).map(lambda x: np.full(1000, x)).batch(64)
    _start(service, dataset, 100)
    client = connect(transport)
    client.connection.send(want(0, (5, 20, 1), (60, 10, 4)))
    client.read_until(96)
    client.read_until(24)
    assert client.found.keys() == {*range(5, 25), *range(60, 100, 4)}
    for position, batch in client.found.items():
        assert np.array_equal(batch[:, 0], np.arange(64) + 64 * position)


def test_two_clients_of_one_position_do_not_share_memory(service, connect):
    dataset = stoker.Dataset.range(100).map(lambda x: np.full(100_000, x))
    _start(service, dataset, 100)
    readers = [connect("local", client=client) for client in (41, 42)]
    for reader in readers:
        reader.connection.send(want(0, (0, 20, 1)))
    for reader in readers:
        reader.read_until(19)
        for position, array in reader.found.items():
            assert np.all(array == position)


def test_invalid_want_closes_its_connection_only(service, connect):
    _start(service, stoker.Dataset.range(100), 100)
    good, bad = connect("tcp"), connect("tcp", client=42)
    bad.connection.send(want(0, (50, 51, 1)))
    with pytest.raises(ConnectionError, match="InvalidArgumentError"):
        bad.read_until(50)
    good.connection.send(want(0, (50, 50, 1)))
    good.read_until(99)
    assert good.found == {k: k for k in range(50, 100)}


def test_a_broken_connection_is_followed_by_another(service, connect):
    _start(service, stoker.Dataset.range(100), 100)
    first = connect("tcp")
    first.connection.send(want(0, (0, 50, 1), limit=10))
    first.read_until(9)
    first.connection.close()
    again = connect("tcp", attempt=2)
    again.connection.send(want(10, (10, 90, 1)))
    again.read_until(99)
    assert again.found == {k: k for k in range(10, 100)}


def test_draining_worker_dismisses_its_clients_at_once(service, connect):
    _start(service, stoker.Dataset.range(100), 100)
    client = connect("tcp")
    client.connection.send(want(0, (0, 50, 1), limit=10))
    client.read_until(9)
    service.workers[0].stop()
    with pytest.raises(ConnectionError, match="UnavailableError"):
        client.read_until(49)


def test_tasks_of_one_epoch_share_rows_until_they_end(service):
    dataset = stoker.Dataset.range(1000).shuffle(100)
    for task in (TASK, TASK + 1):
        _start(service, dataset, 1000, task)
    shell = _shell(service)
    assert len(shell._pipelines._rows._rows) == 1
    for task in (TASK, TASK + 1):
        shell.call(logic.Worker.session_message, m.TaskStop(task), 0.0)
    assert eventually(lambda: not shell._pipelines._rows._rows)
