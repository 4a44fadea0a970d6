import logging
import socket

import pytest

from stoker.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from stoker.service import messages as m
from stoker.service.client.route import Route
from stoker.wire.transports import Connection, Listener, Transport
from stoker.wire.transports.local import process_token
from stoker.wire.transports.memory import MemoryTransport

HERE = f"{process_token()}/0"


class _Network:
    """Transports of these names, of which only some get through; counts what was tried."""

    def __init__(self, *names: str) -> None:
        self.open = set(names)
        self.tried: list[str] = []
        self.patience: list[float] = []
        self._transport = MemoryTransport()
        self._listener = self._transport.listen("worker", 1, lambda connection: None)

    def get(self, name: str) -> Transport:
        network = self

        class _Tried(Transport):
            def listen(self, host: str, port: int, on_connection: object) -> Listener:
                raise NotImplementedError

            def connect(self, address: str, timeout: float) -> Connection:
                network.tried.append(name)
                network.patience.append(timeout)
                if name not in network.open:
                    raise UnavailableError(f"cannot connect to {address}: {name} is shut")
                return network._transport.connect("worker:1", timeout)

        return _Tried()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def network(monkeypatch):
    network = _Network("local", "shm", "tcp", "grpc")
    monkeypatch.setattr("stoker.service.client.route.get_transport", network.get)
    yield network
    network.close()


def _task(**data_transfer_addresses: str) -> m.TaskInfo:
    return m.TaskInfo(1, "worker:1", data_transfer_addresses)


ELSEWHERE = _task(local="another/0", shm="@s", tcp="worker:1", grpc="worker:2")


def _connect(route: Route, task: m.TaskInfo, network: _Network) -> list[str]:
    """What was tried to connect, the last with success."""
    network.tried.clear()
    route.connect(task, 1).close()
    return network.tried


def test_a_worker_of_this_process_is_read_within_it(network):
    task = _task(local=HERE, shm="@s", tcp="worker:1")
    assert _connect(Route(None), task, network) == ["local"]


def test_a_worker_elsewhere_is_tried_by_shared_memory_and_tcp(network):
    assert _connect(Route(None), ELSEWHERE, network) == ["shm"]
    network.open = {"tcp"}
    assert _connect(Route(None), ELSEWHERE, network) == ["shm", "tcp"]


def test_grpc_is_tried_only_when_named(network):
    task = _task(local="another/0", grpc="worker:2")
    for named in (None, "tcp"):
        with pytest.raises(FailedPreconditionError, match="only if `data_transfer_protocol='grpc'"):
            Route(named).connect(task, 1)
    assert network.tried == []
    assert _connect(Route("grpc"), task, network) == ["grpc"]


def test_what_did_not_get_through_is_not_tried_again(network):
    route = Route(None)
    network.open = {"tcp"}
    assert _connect(route, ELSEWHERE, network) == ["shm", "tcp"]
    assert _connect(route, ELSEWHERE, network) == ["tcp"]
    other = _task(shm="@other", tcp="worker:7")
    assert _connect(route, other, network) == ["shm", "tcp"]


def test_when_nothing_gets_through_everything_is_tried_again(network):
    route = Route(None)
    network.open = {"tcp"}
    _connect(route, ELSEWHERE, network)
    network.open = set()
    with pytest.raises(UnavailableError, match=r"tcp is shut"):
        route.connect(ELSEWHERE, 1)
    with pytest.raises(UnavailableError, match=r"shm: .*shm is shut; tcp: .*tcp is shut"):
        route.connect(ELSEWHERE, 1)
    network.open = {"shm"}
    assert _connect(route, ELSEWHERE, network) == ["shm"]


def test_the_time_is_shared_by_what_is_tried(network):
    network.open = {"tcp"}
    Route("grpc").connect(ELSEWHERE, 9).close()
    assert network.patience == pytest.approx([3, 4.5, 9], abs=0.5)


def test_the_only_transports_error_is_passed_on_as_it_is(network):
    network.open = set()
    with pytest.raises(UnavailableError, match=r"^cannot connect to worker:1: tcp is shut$"):
        Route(None).connect(_task(tcp="worker:1"), 1)


@pytest.mark.parametrize("name", ["local", "shm", "tcp", "grpc"])
def test_a_named_transport_comes_first(network, name, caplog):
    task = _task(local=HERE, shm="@s", tcp="worker:1", grpc="worker:2")
    assert _connect(Route(name), task, network) == [name]
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "task", "why"),
    [
        ("local", ELSEWHERE, "it runs in another process"),
        ("grpc", _task(shm="@s", tcp="worker:1"), "it does not serve it"),
        ("memory", ELSEWHERE, "it does not serve it"),
        ("grpc", ELSEWHERE, "grpc is shut"),
    ],
)
def test_a_named_transport_that_cannot_be_used_is_replaced_with_one_warning(
    network, name, task, why, caplog
):
    network.open = {"tcp"}
    route = Route(name)
    for _ in range(3):
        assert _connect(route, task, network)[-1] == "tcp"
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert f"data_transfer_protocol {name!r} cannot be used with worker worker:1" in caplog.text
    assert why in caplog.text
    assert "over tcp" in caplog.text


def test_a_worker_that_serves_nothing_known_is_an_error_that_names_what_it_serves(network):
    with pytest.raises(FailedPreconditionError, match="worker:1 serves elements by quic, none of"):
        Route(None).connect(_task(quic="worker:9"), 1)


def test_an_address_that_is_none_is_passed_over_like_a_worker_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        Route(None).connect(_task(shm="nonsense", tcp=f"127.0.0.1:{port}"), 1).close()
    with pytest.raises(InvalidArgumentError):
        Route(None).connect(_task(tcp="nonsense"), 1)
