"""Probes of a dispatcher and of a worker's data port: identity, versions, clock, frames."""

import contextlib
import importlib.metadata
import socket
import sys
import time
from typing import Any

import numpy as np
import pytest

from stoker import Dataset
from stoker.errors import UnavailableError, WireError
from stoker.service import messages as m
from stoker.service.control import rpc
from stoker.service.process.host import versions
from stoker.version import VERSION
from stoker.wire import frames as f
from stoker.wire.addresses import parse_address
from stoker.wire.transports import get_transport
from tests.serving import Service, eventually

linux = pytest.mark.skipif(sys.platform != "linux", reason="shared memory is Linux's")


def _address(service: Service) -> str:
    return service.target.removeprefix("grpc://")


def _ask(service: Service) -> Any:
    return rpc.call(_address(service), m.Probe(), 5.0)


def _shell(service: Service) -> Any:
    return service.workers[0]._shell


def _worker_of(service: Service) -> Any:
    [worker] = service.state.workers.values()
    return worker.added


def test_a_dispatcher_reports_itself_and_its_workers():
    with Service(1, worker={"data_transfer_protocol": "tcp"}) as service:
        before = time.time()
        reply = _ask(service)
        worker = _worker_of(service)
        assert before <= reply.clock <= time.time()
        assert reply.workers == [
            m.WorkerPlace(
                worker.worker_id,
                service.workers[0].address,
                worker.data_transfer_addresses,
                versions(),
            )
        ]
        assert (reply.protocol_min, reply.protocol_max) == (m.PROTOCOL_MIN, m.PROTOCOL_MAX)
        assert (reply.stoker, reply.journaled) == (VERSION, False)


def test_servers_need_no_metadata_of_an_installed_package(monkeypatch):
    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with Service(1) as service:
        assert _ask(service).stoker == VERSION


def test_a_dispatcher_reports_its_journal(tmp_path):
    with Service(0, fault_tolerant_mode=True, work_dir=str(tmp_path)) as service:
        assert _ask(service).journaled


@pytest.mark.parametrize("protocol", ["tcp", pytest.param("shm", marks=linux), "grpc"])
def test_a_worker_answers_probes_on_every_transport(protocol):
    fields = {"data_transfer_protocol": "grpc"} if protocol == "grpc" else {}
    with Service(1, worker=fields) as service:
        worker = _worker_of(service)
        connection = get_transport(protocol).connect(worker.data_transfer_addresses[protocol], 5)
        try:
            connection.send(f.WorkerProbe(2, 100_000))
            received: list[Any] = [connection.receive(5.0) for _ in range(3)]
            reply, *elements = received
            assert (reply.worker, reply.worker_id) == (worker.address, worker.worker_id)
            assert (reply.dispatcher, reply.stoker) == (_address(service), VERSION)
            assert [frame.elements[0].nbytes for frame in elements] == [100_000, 100_000]
            np.testing.assert_array_equal(*(frame.elements[0] for frame in elements))
        finally:
            del elements, received
            connection.close()


@linux
def test_a_probe_returns_the_shared_memory_it_was_lent():
    with Service(1) as service:
        address = _worker_of(service).data_transfer_addresses["shm"]
        connection = get_transport("shm").connect(address, 5)
        connection.send(f.WorkerProbe(3, 1 << 20))
        received = [connection.receive(5.0) for _ in range(4)]
        pool = _shell(service).segments
        assert pool.statistics()["lent_bytes"] == 3 << 20
        received.clear()
        connection.close()
        assert eventually(lambda: not pool.clients)
        statistics = pool.statistics()
        assert (statistics["lent_bytes"], statistics["retired_bytes"]) == (0, 0)


def test_a_probe_is_no_job_and_no_reader():
    with Service(1) as service:
        connection = get_transport("tcp").connect(service.workers[0].address, 5)
        connection.send(f.WorkerProbe())
        connection.receive(5.0)
        assert not service.state.jobs
        assert not _shell(service).logic.clients.opened
        connection.close()
        assert sorted(Dataset.range(3).distribute(service.target)) == [0, 1, 2]


@pytest.mark.parametrize("wanted", [(65, 1), (1, (1 << 20) + 1), (-1, 1)])
def test_a_probe_for_more_than_its_limits_is_refused(wanted):
    with Service(1) as service:
        connection = get_transport("tcp").connect(service.workers[0].address, 5)
        connection.send(f.WorkerProbe(*wanted))
        with pytest.raises((UnavailableError, WireError)):
            connection.receive(5.0)
        connection.close()


def _probing_socket(service: Service, probes: int) -> socket.socket:
    """Return a connection on which probes were sent in one write, and nothing is received."""
    host, port = parse_address(service.workers[0].address)
    connection = socket.create_connection((host, port), 5.0)
    probe = b"".join(bytes(part) for part in f.encode(f.WorkerProbe(64, 1 << 20)))
    connection.sendall(probes * probe)
    return connection


def _bytes_until_the_end(connection: socket.socket) -> int:
    """Receive until the peer has closed the connection."""
    connection.settimeout(5.0)
    received = 0
    with contextlib.suppress(ConnectionResetError):
        while block := connection.recv(1 << 20):
            received += len(block)
    return received


def test_probes_before_the_last_answer_end_the_connection(caplog):
    with Service(1) as service, _probing_socket(service, 100) as connection:
        assert eventually(lambda: "a probe came before the last was answered" in caplog.text)
        assert _bytes_until_the_end(connection) < 64 << 20  # of 6,400 MiB


def test_the_minute_ends_the_connection_of_a_blocked_answer():
    with Service(1) as service, _probing_socket(service, 1) as connection:
        connections = _shell(service)._connections
        assert eventually(
            lambda: any(channel.is_sending for channel, _ in connections._greeting.values())
        )
        connections.tick(time.monotonic() + 61)
        assert _bytes_until_the_end(connection) < 64 << 20
