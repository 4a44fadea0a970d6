"""Hosts that cannot be reached for a while, or not from everywhere."""

import re

import pytest

from tests.network.namespaces import Host, Network
from tests.network.processes import PORT, Service, result_of

pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture
def hosts(network: Network) -> list[Host]:
    return [network.host(name) for name in ("head", "first", "second", "trainer")]


def test_epoch_ends_on_the_other_worker_when_a_link_fails(
    network: Network, service: Service, hosts: list[Host]
) -> None:
    head, first, second, trainer = hosts
    address = f"{head.ipv4()}:{PORT}"
    dispatcher = service.dispatcher(head, worker_timeout_ms=3_000)
    service.workers([first, second], address, buffer_bytes=1_000_000)
    reading = service.trainer(trainer, address, elements=300, size=100_000, seconds=0.02)
    reading.wait_for("received 50\n")
    network.unplug(second)
    dispatcher.wait_for(rf"worker {second.ipv4()}:\d+ was lost: no heartbeat for 3 s", 10)
    found = result_of(reading)
    assert found.error == ""
    assert len(found.elements) == len(set(found.elements))
    assert len(found.elements) + found.lost >= 300
    assert found.longest_pause < 5
    network.plug(second)
    dispatcher.wait_for(r"(?s)was lost.*a worker joined; there are 2", 20)
    again = result_of(service.trainer(trainer, address, elements=100, seconds=0.01))
    assert (again.elements, again.lost, again.error) == (list(range(100)), 0, "")


def test_nothing_is_lost_when_the_trainers_link_fails_for_a_while(
    network: Network, service: Service, hosts: list[Host]
) -> None:
    head, first, _, trainer = hosts
    address = f"{head.ipv4()}:{PORT}"
    service.dispatcher(head)
    service.worker(first, address)
    reading = service.trainer(trainer, address, elements=400, size=100_000, seconds=0.01)
    reading.wait_for("received 50\n")
    network.unplug(trainer)
    # Longer than the peer timeout: both ends close the connection.
    reading.wait_for("has not been reached from here", 20)
    network.plug(trainer)
    found = result_of(reading)
    assert (found.elements, found.lost, found.error) == (list(range(400)), 0, "")


def test_nothing_is_lost_when_the_dispatchers_link_fails_for_longer_than_the_leases(
    network: Network, service: Service, hosts: list[Host]
) -> None:
    head, first, second, trainer = hosts
    address = f"{head.ipv4()}:{PORT}"
    leases = {"worker_timeout_ms": 3_000, "client_timeout_ms": 10_000}
    dispatcher = service.dispatcher(head, **leases)
    service.workers([first, second], address)
    reading = service.trainer(trainer, address, elements=300, size=100_000, seconds=0.02)
    reading.wait_for("received 50\n")
    network.unplug(head)
    dispatcher.wait_for("no message of any worker or client was received", 20)
    network.plug(head)
    found = result_of(reading)
    assert (found.elements, found.lost, found.error) == (list(range(300)), 0, "")
    assert "was lost" not in dispatcher.output


def test_workers_that_a_trainer_cannot_reach_are_named(
    network: Network, service: Service, hosts: list[Host]
) -> None:
    """They are named while another worker delivers, and read when they can be reached."""
    head, drops, refuses, trainer = hosts
    address = f"{head.ipv4()}:{PORT}"
    service.dispatcher(head)
    service.workers([network.host("other"), drops, refuses], address)
    routes = {drops: f"blackhole {trainer.ipv4()}", trainer: f"unreachable {refuses.ipv4()}"}
    for host, route in routes.items():
        host.ip(f"route add {route}")
    reading = service.trainer(trainer, address, elements=1_500, seconds=0.01)
    for host, reason in (
        (drops, "no answer within 5.0 s; .* a firewall drops"),
        (refuses, "No route to host"),
    ):
        at = re.escape(host.ipv4()) + r":\d+"
        named = rf"worker {at} has not been reached from here for \d+ s: cannot connect to {at}: "
        reading.wait_for(named + f".*{reason}.*`worker_address`", 15)
    assert "no element for" not in reading.output
    for host, route in routes.items():
        host.ip(f"route del {route}")
    found = result_of(reading)
    assert (found.elements, found.lost, found.error) == (list(range(1_500)), 0, "")


def test_trainer_that_cannot_reach_the_dispatcher_says_why(
    service: Service, hosts: list[Host]
) -> None:
    head, _, _, trainer = hosts
    address = f"{head.ipv4()}:{PORT}"
    service.dispatcher(head)
    trainer.ip(f"route add unreachable {head.ipv4()}")
    found = result_of(service.trainer(trainer, address, connect_timeout=0.5))
    assert re.match(
        f"UnavailableError: no dispatcher answered at {re.escape(address)} within . s "
        r"\(No route to host\)",
        found.error,
    )
