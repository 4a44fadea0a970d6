"""`stoker doctor` on a host of its own."""

import json
from typing import Any

import pytest

from tests.network.namespaces import Host, Network
from tests.network.processes import PORT, Service

pytestmark = [pytest.mark.network, pytest.mark.slow]

IGNORED = {"shared-memory-unused", "slow-link", "long-round-trip"}
"""Warnings: the hosts are namespaces of one kernel, and the machine of the tests may be busy."""


def troubles(service: Service, host: Host, address: str) -> list[tuple[str, str, str]]:
    """Return level, name and subject of the findings that are not "ok"."""
    doctor = service.command(host, "doctor", address, "--json", "--timeout", "1s")
    doctor.wait()
    found: dict[str, Any] = json.loads(doctor.output)
    return [
        (each["level"], each["name"], each["subject"])
        for each in found["findings"]
        if each["level"] != "ok" and each["name"] not in IGNORED
    ]


def test_workers_on_other_hosts_are_healthy(network: Network, service: Service) -> None:
    head, worker, trainer = map(network.host, ["head", "worker", "trainer"])
    address = f"{head.ipv4()}:{PORT}"
    service.dispatcher(head)
    service.worker(worker, address)
    assert troubles(service, trainer, address) == []


def test_worker_that_trainers_cannot_route_to(network: Network, service: Service) -> None:
    """It is on a network that the dispatcher is in and the trainer is not."""
    head, worker = network.host("head", [0, 1]), network.host("worker", [1])
    trainer = network.host("trainer", [0])
    service.dispatcher(head)
    service.worker(worker, f"{head.ipv4(1)}:{PORT}", port=PORT)
    found = troubles(service, trainer, f"{head.ipv4()}:{PORT}")
    assert [(level, subject) for level, _, subject in found] == [
        ("fault", f"worker {worker.ipv4(1)}:{PORT}")
    ]
    # The missing gateway is noticed after about a second, as long as the doctor waits.
    assert found[0][1] in ("port-dropped", "host-unreachable")


def test_worker_on_loopback_beside_the_dispatcher(network: Network, service: Service) -> None:
    head, trainer = map(network.host, ["head", "trainer"])
    service.dispatcher(head)
    workers = service.command(head, "worker", "--dispatcher", f"localhost:{PORT}")
    subject = "worker " + workers.wait_for(r"serves at (localhost:\d+)")[1]
    assert troubles(service, head, f"localhost:{PORT}") == []
    found = troubles(service, trainer, f"{head.ipv4()}:{PORT}")
    assert found == [("fault", "loopback-advertised", subject)]


def test_dispatcher_behind_a_cut_cable(network: Network, service: Service) -> None:
    head, trainer = map(network.host, ["head", "trainer"])
    service.dispatcher(head)
    network.unplug(head)
    [(level, name, _), _] = troubles(service, trainer, f"{head.ipv4()}:{PORT}")
    assert level == "fault"
    assert name in ("port-dropped", "host-unreachable")
