"""Staged faults of the dispatcher's address: the doctor names each, with its remedy."""

import socket
import threading

import grpc
import pytest

from stoker.cli.doctor.findings import Level
from stoker.service import messages as m
from tests.cli.doctor import staging
from tests.cli.doctor.staging import findings, fix_of, troubles
from tests.serving import Service, close, raw_server

NOT_CHECKED = (Level.NOT_CHECKED, "not-checked")


def only(name):
    """Return the troubles of a service whose dispatcher has one fault."""
    return [(Level.FAULT, name), NOT_CHECKED]


def test_a_healthy_service_has_no_trouble():
    with Service(2) as service:
        found = findings(service)
        assert troubles(found) == []
        assert [each.name for each in found[:2]] == ["dispatcher", "workers"]
        assert "2 of 2 can be read from here" in found[1].seen


def test_a_port_where_nothing_listens(closed_port):
    found = findings(f"localhost:{closed_port}")
    assert troubles(found) == only("port-refused")
    assert "start `stoker dispatcher`" in fix_of(found, "port-refused")


def test_a_remote_port_where_nothing_listens_may_be_bound_to_loopback(monkeypatch, closed_port):
    staging.resolve_host(monkeypatch)
    found = findings(f"{staging.HOST}:{closed_port}")
    assert "--host 0.0.0.0 --insecure" in fix_of(found, "port-refused")


def test_a_port_that_drops_packets():
    with staging.dropping_port() as port:
        found = findings(f"localhost:{port}", timeout=0.2)
    assert troubles(found) == only("port-dropped")
    assert "firewall" in fix_of(found, "port-dropped")


def test_a_name_that_does_not_resolve():
    found = findings("dispatcher.invalid:5050")
    assert troubles(found) == only("name-unresolved")
    assert "'dispatcher.invalid'" in found[0].seen


def test_a_name_server_that_does_not_answer(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [ended.wait()][1:])
    found = findings("dispatcher.example:5050", timeout=0.1)
    ended.set()
    assert troubles(found) == only("name-unresolved")
    assert "did not answer for 0.1 s" in found[0].seen


@pytest.mark.parametrize("answer", [staging.answer_http, staging.send_ssh_banner])
def test_a_server_that_is_not_stoker(answer):
    with raw_server(answer) as port:
        found = findings(f"localhost:{port}", timeout=1.0)
    assert troubles(found) == only("not-stoker")
    assert "correct the port" in fix_of(found, "not-stoker")


def test_another_grpc_server():
    server = grpc.server(None)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        assert troubles(findings(f"localhost:{port}")) == only("not-stoker")
    finally:
        server.stop(None).wait()


def test_a_forwarder_without_a_target():
    with raw_server(close) as port:
        assert troubles(findings(f"localhost:{port}")) == only("port-closes")


def test_a_frozen_server():
    with raw_server(lambda connection: None) as port:
        assert troubles(findings(f"localhost:{port}", timeout=0.2)) == only("no-answer")


@pytest.mark.parametrize("protocol", ["tcp", "grpc"])
def test_a_workers_port_in_place_of_the_dispatchers(protocol):
    with Service(1, worker={"data_transfer_protocol": protocol}) as service:
        found = findings(service.workers[0].address)
        assert troubles(found) == only("not-a-dispatcher")
        assert service.target.removeprefix("grpc://") in fix_of(found, "not-a-dispatcher")


def test_no_common_protocol_version():
    with Service(1) as service:
        found = findings(service, protocol=(m.PROTOCOL_MAX + 1, m.PROTOCOL_MAX + 2))
    assert troubles(found) == only("protocol-mismatch")
    assert "same stoker version" in fix_of(found, "protocol-mismatch")


def test_no_workers():
    with Service(0) as service:
        found = findings(service)
    assert troubles(found) == [(Level.FAULT, "no-workers")]
    assert "stoker worker --dispatcher" in fix_of(found, "no-workers")
