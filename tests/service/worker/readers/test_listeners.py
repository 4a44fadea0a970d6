import socket
import sys

import pytest

from stoker.errors import UnavailableError
from stoker.service.config import WorkerConfig
from stoker.service.process.host_addresses import own_host
from stoker.service.worker.readers.data_connections import DataConnections
from stoker.service.worker.readers.listeners import WorkerListeners, shared_segments
from stoker.service.worker.readers.probing import probe_reply
from stoker.wire.addresses import parse_address
from stoker.wire.transports import get_transport

DISPATCHER = "localhost:5050"
linux = pytest.mark.skipif(sys.platform != "linux", reason="shared memory is Linux's")


class _Listeners(WorkerListeners):
    """Listeners that are closed with their poller."""

    def __init__(self, **fields):
        config = WorkerConfig(dispatcher_address=DISPATCHER, **fields)
        self.connections = DataConnections(
            lambda number, message: None,
            lambda number: None,
            lambda: probe_reply("localhost:1", 0, DISPATCHER, 0.0),
        )
        super().__init__(config, DISPATCHER, self.connections, shared_segments(config))

    def close(self):
        super().close()
        self.connections.close()
        self.connections.poller.close()


def _listeners(**fields):
    return _Listeners(**fields)


@linux
def test_worker_serves_by_every_automatic_transport():
    listening = _listeners()
    try:
        assert set(listening.data_transfer_addresses) == {"tcp", "local", "shm"}
        assert listening.address == listening.data_transfer_addresses["tcp"]
        for name, address in listening.data_transfer_addresses.items():
            get_transport(name).connect(address, 5).close()
    finally:
        listening.close()


@pytest.mark.parametrize("name", ["tcp", "grpc"])
def test_named_protocol_replaces_all_others(name):
    listening = _listeners(data_transfer_protocol=name)
    try:
        assert set(listening.data_transfer_addresses) == {name, "local"}
        assert listening.address == listening.data_transfer_addresses[name]
        get_transport(name).connect(listening.address, 5).close()
    finally:
        listening.close()


def test_grpc_alone_uses_the_configured_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    listening = _listeners(data_transfer_protocol="grpc", port=port)
    listening.close()
    assert listening.address == f"localhost:{port}"


def test_zero_bytes_disable_shared_memory():
    listening = _listeners(shared_memory_bytes=0)
    listening.close()
    assert set(listening.data_transfer_addresses) == {"tcp", "local"}


def test_platform_without_shared_memory_uses_the_others(monkeypatch):
    monkeypatch.setattr("stoker.service.worker.readers.listeners.sys.platform", "darwin")
    listening = _listeners()
    listening.close()
    assert set(listening.data_transfer_addresses) == {"tcp", "local"}


@linux
def test_failure_to_open_shared_memory_is_a_warning(monkeypatch, caplog):
    def refuse(*_):
        raise UnavailableError("cannot share memory on this host: not permitted")

    monkeypatch.setattr("stoker.wire.transports.shm.ShmTransport.listen", refuse)
    listening = _listeners()
    listening.close()
    assert set(listening.data_transfer_addresses) == {"tcp", "local"}
    assert "not served by shared memory: cannot share memory on this host" in caplog.text


@pytest.mark.parametrize(
    ("data_address", "expected"),
    [
        ("worker.example", "worker.example:{port}"),
        ("worker.example:%port%", "worker.example:{port}"),
        ("worker.example:%dts_port%", "worker.example:{port}"),
        ("worker.example:7000", "worker.example:7000"),
        ("10.0.0.7", "10.0.0.7:{port}"),
        ("fd00::7", "[fd00::7]:{port}"),
        ("[fd00::7]", "[fd00::7]:{port}"),
        ("[fd00::7]:%port%", "[fd00::7]:{port}"),
        ("[fd00::7]:7000", "[fd00::7]:7000"),
    ],
)
@pytest.mark.parametrize("name", ["tcp", "grpc"])
def test_configured_data_address_is_advertised(name, data_address, expected, caplog):
    caplog.set_level("INFO", "stoker.worker")
    listening = _listeners(data_transfer_address=data_address, data_transfer_protocol=name)
    listening.close()
    port = listening.address.removeprefix("localhost:")
    assert listening.data_transfer_addresses[name] == expected.format(port=port)
    assert f"trainers read elements at {expected.format(port=port)}" in caplog.text


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this system has no IPv6")
def test_worker_on_all_interfaces_advertises_none_that_means_all():
    for host in ("0.0.0.0", "::", ""):
        listening = _listeners(host=host, insecure=True)
        listening.close()
        name, port = parse_address(listening.address)
        assert name == own_host(host)
        assert port > 0


def test_port_in_use_leaves_nothing_open():
    first = _listeners()
    port = int(first.address.rpartition(":")[2])
    with pytest.raises(UnavailableError, match="cannot listen on"):
        _listeners(port=port)
    first.close()
