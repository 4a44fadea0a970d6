"""Staged faults of workers: the doctor names each, with its remedy."""

import errno
import os
import sys
import threading
from typing import Any

import pytest

from stoker.cli.doctor import data_plane, workers
from stoker.cli.doctor.findings import Level
from stoker.service import messages as m
from stoker.service.process.host import versions
from stoker.service.worker import shell
from stoker.service.worker.readers.probing import probe_reply
from stoker.wire import frames as f
from stoker.wire.transports.shm import SHM, borrowing
from tests.cli.doctor import staging
from tests.cli.doctor.staging import HOST, findings, fix_of, seen_of, troubles
from tests.faults.proxy import Forwarder
from tests.serving import Service, close, eventually, raw_server

FAULT, WARNING = Level.FAULT, Level.WARNING

linux = pytest.mark.skipif(sys.platform != "linux", reason="shared memory is Linux's")


@pytest.fixture(autouse=True)
def _other_machine(monkeypatch):
    staging.resolve_host(monkeypatch)


def over_tcp(**fields: Any) -> Service:
    """Return a service with one worker, which serves by TCP only."""
    return Service(1, worker={"data_transfer_protocol": "tcp", **fields})


def test_an_advertised_name_that_does_not_resolve_here():
    with over_tcp(worker_address="worker.invalid") as service:
        found = findings(service)
    assert troubles(found) == [(FAULT, "name-unresolved")]
    assert "`worker_address`" in fix_of(found, "name-unresolved")


def test_an_advertised_port_that_refuses(closed_port):
    with over_tcp(worker_address=f"{HOST}:{closed_port}") as service:
        found = findings(service)
    assert troubles(found) == [(FAULT, "port-refused")]


def test_an_advertised_port_behind_a_firewall():
    with staging.dropping_port() as port, over_tcp(worker_address=f"{HOST}:{port}") as service:
        found = findings(service, timeout=0.3)
    assert troubles(found) == [(FAULT, "port-dropped")]
    assert "open this TCP port" in fix_of(found, "port-dropped")


def test_an_advertised_address_that_is_none():
    with over_tcp() as service:
        staging.advertise(service, tcp="fe80::1")
        found = findings(service)
    assert troubles(found) == [(FAULT, "address-invalid")]
    assert "'fe80::1'" in seen_of(found, "address-invalid")


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0"])
def test_a_worker_on_another_machine_advertises_loopback(host, closed_port):
    with over_tcp() as service:
        staging.advertise(service, tcp=f"{host}:{closed_port}")
        found = findings(service)
    assert troubles(found) == [(FAULT, "loopback-advertised")]
    assert "--host 0.0.0.0 --insecure" in fix_of(found, "loopback-advertised")


def test_loopback_with_a_worker_of_this_machine_at_the_same_port():
    with over_tcp() as here, over_tcp(worker_address=here.workers[0].address) as service:
        found = findings(service)
    assert troubles(found) == [(FAULT, "loopback-advertised")]
    assert "is another worker" in seen_of(found, "loopback-advertised")


def test_another_worker_answers_at_the_address():
    with over_tcp() as other:
        port = other.workers[0].address.rpartition(":")[2]
        with over_tcp(worker_address=f"{HOST}:{port}") as service:
            found = findings(service)
    assert troubles(found) == [(FAULT, "another-worker")]


@pytest.mark.parametrize("answer", [staging.answer_http, staging.send_ssh_banner, close])
def test_another_program_answers_at_the_address(answer):
    with raw_server(answer) as port, over_tcp(worker_address=f"{HOST}:{port}") as service:
        assert troubles(findings(service)) == [(FAULT, "not-stoker")]


def test_one_bad_worker_of_two_is_named(closed_port):
    with over_tcp() as service:
        bad = service.add_worker(worker_address=f"{HOST}:{closed_port}")
        found = findings(service)
    assert troubles(found) == [(FAULT, "port-refused")]
    [finding] = [each for each in found if each.level is FAULT]
    assert finding.subject == f"worker {bad.address}"
    assert "1 of 2 can be read" in seen_of(found, "workers")


def test_checks_that_take_too_long_are_not_waited_for(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(workers, "SECONDS", 0.1)
    monkeypatch.setattr(workers, "check_worker", lambda *_: ended.wait())
    with over_tcp() as service:
        found = findings(service, timeout=0.1)
    ended.set()
    assert troubles(found) == [(Level.NOT_CHECKED, "not-checked"), (FAULT, "none-readable")]
    assert seen_of(found, "not-checked") == "the check took more than 0.5 s"


def test_a_check_that_fails_does_not_end_the_others(monkeypatch):
    original = workers.check_worker
    with over_tcp() as service:
        failing = service.workers[0].address

        def check(place, *arguments):
            if place.address == failing:
                raise RuntimeError("unforeseen")
            return original(place, *arguments)

        monkeypatch.setattr(workers, "check_worker", check)
        failed = findings(service)
        service.add_worker()
        found = findings(service)
    assert troubles(failed) == [(Level.NOT_CHECKED, "not-checked"), (FAULT, "none-readable")]
    assert troubles(found) == [(Level.NOT_CHECKED, "not-checked")]
    assert seen_of(found, "not-checked") == "the check failed: RuntimeError('unforeseen')"


@linux
def test_shared_memory_softens_an_address_that_cannot_be_reached(closed_port):
    with Service(1, worker={"worker_address": f"{HOST}:{closed_port}"}) as service:
        found = findings(service)
    assert troubles(found) == [(WARNING, "port-refused")]


@pytest.mark.parametrize(("python", "numpy"), [("3.9", None), (None, "1")])
def test_other_versions_of_python_and_numpy(monkeypatch, python, numpy):
    here = versions()
    other = m.Versions(python or here.python, numpy or here.numpy)
    monkeypatch.setattr(shell, "versions", lambda: other)
    with over_tcp() as service:
        found = findings(service)
        assert troubles(found) == [(FAULT, "versions-differ")]
        monkeypatch.undo()
        service.add_worker()
        assert troubles(findings(service)) == [(WARNING, "versions-differ")]


def test_another_version_of_stoker_is_a_warning():
    with over_tcp() as service:
        found = findings(service, stoker="9.0")
    assert troubles(found) == [(WARNING, "stoker-versions-differ")]
    assert "the dispatcher, worker localhost" in seen_of(found, "stoker-versions-differ")


def test_no_common_data_protocol_version():
    with over_tcp() as service:
        found = findings(service, data_protocol=(f.PROTOCOL_MAX + 1, f.PROTOCOL_MAX + 1))
    assert troubles(found) == [(FAULT, "protocol-mismatch")]


@linux
@pytest.mark.parametrize("refused", [False, True])
def test_shared_memory_needs_a_common_version_too(refused, closed_port):
    address = f"{HOST}:{closed_port}" if refused else ""
    others = [(FAULT, "port-refused")] if refused else []
    with Service(1, worker={"worker_address": address}) as service:
        found = findings(service, data_protocol=(f.PROTOCOL_MAX + 1, f.PROTOCOL_MAX + 1))
    assert troubles(found) == [*others, (FAULT, "protocol-mismatch")]


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_off_by_an_hour(hours):
    clock = staging.healthy_machine().clock
    with over_tcp() as service:
        found = findings(service, clock=lambda: clock() - 3600 * hours)
    assert troubles(found) == [(WARNING, "clock-differs")]
    assert f"3600 s {'ahead of' if hours > 0 else 'behind'} this machine" in seen_of(
        found, "clock-differs"
    )
    assert "this machine" in fix_of(found, "clock-differs")


def test_a_worker_with_another_clock_is_named(monkeypatch):
    with over_tcp() as service:
        monkeypatch.setattr(
            shell,
            "probe_reply",
            lambda worker, number, dispatcher, clock: probe_reply(
                worker, number, dispatcher, clock - 60
            ),
        )
        found = findings(service)
        seen = seen_of(found, "clock-differs")
        assert seen.startswith(f"worker {service.workers[0].address}: up to 60 s behind")


def test_a_grpc_worker_without_grpcio_here():
    with Service(1, worker={"data_transfer_protocol": "grpc"}) as service:
        found = findings(service, modules=frozenset())
        assert troubles(found) == [(FAULT, "grpc-missing")]
        assert "pip install 'stoker[grpc]'" in fix_of(found, "grpc-missing")
        found = findings(service)
        assert troubles(found) == []
        assert "data_transfer_protocol='grpc'" in seen_of(found, "workers")


def test_workers_that_drain():
    with over_tcp() as service:
        worker: Any = service.workers[0]
        worker._shell.drain(0.0, threading.Event())
        assert eventually(lambda: any(each.draining for each in service.state.workers.values()))
        assert troubles(findings(service)) == [(FAULT, "draining")]
        service.add_worker()
        assert troubles(findings(service)) == [(WARNING, "draining")]


def test_a_slow_link():
    with Forwarder() as network, over_tcp(worker_address=f"{HOST}:{network.port}") as service:
        worker: Any = service.workers[0]
        network.target = int(worker._shell._listeners._listeners[0].address.rpartition(":")[2])
        network.delay = 0.03
        found = findings(service, links=True)
    assert troubles(found) == [(WARNING, "long-round-trip"), (WARNING, "slow-link")]
    assert "compression" in fix_of(found, "slow-link")


def test_a_link_over_which_nothing_arrives_in_time(monkeypatch):
    def time_out(*_):
        raise TimeoutError

    monkeypatch.setattr(data_plane, "_read_round", time_out)
    with over_tcp() as service:
        found = findings(service, links=True)
    assert troubles(found) == [(WARNING, "slow-link")]
    assert "64 KiB did not arrive" in seen_of(found, "slow-link")


def test_a_connection_that_breaks_under_load(monkeypatch):
    with Forwarder() as network, over_tcp(worker_address=f"{HOST}:{network.port}") as service:
        worker: Any = service.workers[0]
        network.target = int(worker._shell._listeners._listeners[0].address.rpartition(":")[2])
        original = data_plane._read_round

        def cut(*arguments):
            network.cut()
            original(*arguments)

        monkeypatch.setattr(data_plane, "_read_round", cut)
        assert troubles(findings(service)) == [(FAULT, "connection-breaks")]


# ── shared memory ─────────────────────────────────────────────────────────────────────────────────
@linux
def test_a_worker_of_this_host_in_another_network_namespace():
    with Service(1) as service:
        staging.advertise(service, shm="@stoker-elsewhere")  # it does not exist in this namespace
        found = findings(service)
    assert troubles(found) == [(WARNING, "shared-memory-unused")]
    assert "--network host" in fix_of(found, "shared-memory-unused")


@linux
def test_a_worker_of_this_host_that_runs_as_another_user(monkeypatch):
    user = os.geteuid()
    with Service(1) as service:
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
        found = findings(service)
    assert troubles(found) == [(WARNING, "shared-memory-unused")]
    assert "as one user" in fix_of(found, "shared-memory-unused")


@linux
def test_shared_memory_that_cannot_be_mapped(monkeypatch):
    def fail(descriptor, _size):
        os.close(descriptor)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(borrowing, "received_mapping", fail)
    monkeypatch.setattr(SHM, "_unusable", "")  # set by the failure, and restored after the test
    with Service(1) as service:
        found = findings(service)
    assert troubles(found) == [(WARNING, "shared-memory-fails")]
    assert "travel over the network" in fix_of(found, "shared-memory-fails")
