import logging
import socket

import pytest

from stoker.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from stoker.service import messages as m
from stoker.service.client.connections.route import Route
from stoker.wire.transports import Connection, Listener, ListenOptions, Transport
from stoker.wire.transports.local import process_token
from stoker.wire.transports.memory import MemoryTransport

HERE = f"{process_token()}/0"


class _Network:
    """Transports of these names, some of which connect; counts the attempts."""

    def __init__(self, *names: str) -> None:
        self.open = set(names)
        self.tried: list[str] = []
        self.patience: list[float] = []
        self._transport = MemoryTransport()
        self._listener = self._transport.listen("worker", 1, lambda connection: None)

    def get(self, name: str) -> Transport:
        network = self

        class _Tried(Transport):
            def _listen(self, host: str, port: int, options: ListenOptions) -> Listener:
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
    monkeypatch.setattr("stoker.service.client.connections.route.get_transport", network.get)
    yield network
    network.close()


def _task(**data_transfer_addresses: str) -> m.TaskInfo:
    return m.TaskInfo(1, "worker:1", data_transfer_addresses)


ELSEWHERE = _task(local="another/0", shm="@s", tcp="worker:1", grpc="worker:2")


def _connect(route: Route, task: m.TaskInfo, network: _Network) -> list[str]:
    """Return the attempts to connect; the last succeeded."""
    network.tried.clear()
    route.connect(task, 1).close()
    return network.tried


def test_worker_of_this_process_is_read_locally(network):
    task = _task(local=HERE, shm="@s", tcp="worker:1")
    assert _connect(Route(None), task, network) == ["local"]


def test_remote_worker_is_tried_by_shm_then_tcp(network):
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


def test_failed_transport_is_not_tried_again(network):
    route = Route(None)
    network.open = {"tcp"}
    assert _connect(route, ELSEWHERE, network) == ["shm", "tcp"]
    assert _connect(route, ELSEWHERE, network) == ["tcp"]
    other = _task(shm="@other", tcp="worker:7")
    assert _connect(route, other, network) == ["shm", "tcp"]


def test_all_transports_are_retried_after_total_failure(network):
    route = Route(None)
    network.open = {"tcp"}
    _connect(route, ELSEWHERE, network)
    network.open = set()
    with pytest.raises(UnavailableError, match=r"tcp is shut"):
        route.connect(ELSEWHERE, 1)
    with pytest.raises(UnavailableError, match=r"tcp is shut"):
        route.connect(ELSEWHERE, 1)
    assert network.tried[-2:] == ["shm", "tcp"]
    network.open = {"shm"}
    assert _connect(route, ELSEWHERE, network) == ["shm"]


def test_timeout_is_shared_by_the_attempts(network):
    network.open = {"tcp"}
    Route("grpc").connect(ELSEWHERE, 9).close()
    assert network.patience == pytest.approx([3, 4.5, 9], abs=0.5)


def test_error_of_a_single_transport_is_raised_unchanged(network):
    network.open = set()
    with pytest.raises(UnavailableError, match=r"^cannot connect to worker:1: tcp is shut$"):
        Route(None).connect(_task(tcp="worker:1"), 1)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (None, r"^cannot connect to worker:1: tcp is shut$"),
        ("shm", r"shm: .*shm is shut; tcp: .*tcp is shut"),
        ("grpc", r"grpc: .*grpc is shut; tcp: .*tcp is shut$"),
    ],
)
def test_shared_memory_is_no_reason_unless_it_is_named(network, named, message):
    network.open = set()
    with pytest.raises(UnavailableError, match=message):
        Route(named).connect(ELSEWHERE, 1)


@pytest.mark.parametrize("name", ["local", "shm", "tcp", "grpc"])
def test_named_transport_is_tried_first(network, name, caplog):
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
def test_unusable_named_transport_warns_once(network, name, task, why, caplog):
    network.open = {"tcp"}
    route = Route(name)
    for _ in range(3):
        assert _connect(route, task, network)[-1] == "tcp"
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert f"data_transfer_protocol {name!r} cannot be used with worker worker:1" in caplog.text
    assert why in caplog.text
    assert "over tcp" in caplog.text


def test_unknown_transports_are_named_in_the_error(network):
    with pytest.raises(FailedPreconditionError, match="worker:1 serves elements by quic, none of"):
        Route(None).connect(_task(quic="worker:9"), 1)


def test_invalid_address_is_skipped_like_a_failed_one():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        Route(None).connect(_task(shm="nonsense", tcp=f"127.0.0.1:{port}"), 1).close()
    with pytest.raises(InvalidArgumentError):
        Route(None).connect(_task(tcp="nonsense"), 1)
