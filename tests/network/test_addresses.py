"""Addresses by which servers are reached from other hosts."""

import re

import pytest

from tests.network.namespaces import Host, Network
from tests.network.processes import PORT, Service, result_of

pytestmark = [pytest.mark.network, pytest.mark.slow]


def _reads_all(service: Service, trainer: Host, dispatcher: str, **options: object) -> None:
    found = result_of(service.trainer(trainer, dispatcher, **options))
    assert (found.elements, found.lost, found.error) == (list(range(100)), 0, "")


def test_commands_print_addresses_that_others_reach(network: Network, service: Service) -> None:
    head, worker, trainer = map(network.host, ["head", "worker", "trainer"])
    everywhere = ("--host", "0.0.0.0", "--insecure")
    dispatcher = service.command(head, "dispatcher", "--port", f"{PORT}", *everywhere)
    line = r"(?m)^dispatcher serves at grpc://(10\.77\.0\.1:5050) \(all interfaces\)$"
    address = dispatcher.wait_for(line)[1]
    # One worker beside the dispatcher, which it reaches by loopback, and one elsewhere.
    for host, way in ((head, f"localhost:{PORT}"), (worker, address)):
        workers = service.command(host, "worker", "--dispatcher", way, *everywhere)
        workers.wait_for(rf"serves at {re.escape(host.ipv4())}:\d+")
    reading = service.trainer(trainer, address, elements=100, seconds=0.01)
    assert result_of(reading).elements == list(range(100))
    for host in (head, worker):
        assert f"worker {host.ipv4()}:" in reading.output


def test_worker_on_loopback_refuses_a_dispatcher_elsewhere(
    network: Network, service: Service
) -> None:
    head, worker = map(network.host, ["head", "worker"])
    service.dispatcher(head)
    command = service.command(worker, "worker", "--dispatcher", f"{head.ipv4()}:{PORT}")
    assert command.wait() == 1
    _, error = command.output.splitlines()  # after the line that it starts
    assert "--host 0.0.0.0 --insecure" in error


def test_worker_advertises_the_interface_that_reaches_the_dispatcher(
    network: Network, service: Service
) -> None:
    """Its default route is through another one."""
    head, worker = network.host("head", [1]), network.host("worker", [0, 1])
    service.dispatcher(head)
    serving = service.worker(worker, f"{head.ipv4(1)}:{PORT}")
    serving.wait_for(rf"serves at {re.escape(worker.ipv4(1))}:\d+")
    _reads_all(service, network.host("trainer", [1]), f"{head.ipv4(1)}:{PORT}")


def test_hosts_without_a_default_route_are_found(network: Network, service: Service) -> None:
    head, trainer = map(network.host, ["head", "trainer"])
    head.ip("route del default")
    head.ip("-6 route del default")
    dispatcher = service.dispatcher(head)
    dispatcher.wait_for(rf"serves at {re.escape(head.ipv4())}:{PORT}")
    service.worker(head, f"localhost:{PORT}")
    _reads_all(service, trainer, f"{head.ipv4()}:{PORT}")


def test_worker_without_a_route_to_the_dispatcher_waits_for_one(
    network: Network, service: Service
) -> None:
    """It advertises no address of an interface that happens to be there."""
    head, worker = network.host("head", [1]), network.host("worker", [0, 1])
    worker.ip("route del default")
    worker.ip("link set eth1 down")
    service.dispatcher(head)
    address = f"{head.ipv4(1)}:{PORT}"
    words = ("--dispatcher", address, "--host", "0.0.0.0", "--insecure")
    workers = service.command(worker, "worker", *words)
    workers.wait_for(f"no route leads to the dispatcher at {address}: Network is unreachable")
    worker.ip("link set eth1 up")
    workers.wait_for(rf"serves at {re.escape(worker.ipv4(1))}:\d+")


def test_hosts_with_ipv6_alone_work(tmp_path) -> None:
    with Network(families=[6], mtu=1280) as network, Service(network, tmp_path) as service:
        head, worker, trainer = map(network.host, ["head", "worker", "trainer"])
        address = f"[{head.ipv6()}]:{PORT}"
        service.dispatcher(head, host="::").wait_for(f"serves at {re.escape(address)}")
        serving = service.worker(worker, address, host="::")
        serving.wait_for(rf"serves at \[{worker.ipv6()}\]:\d+")
        # Elements of thousands of packets, which hold as little as IPv6 permits.
        _reads_all(service, trainer, address, elements=100, size=3_000_000)


def test_all_interfaces_include_ipv4_and_ipv6(network: Network, service: Service) -> None:
    head, trainer = map(network.host, ["head", "trainer"])
    service.dispatcher(head, host="::")
    service.worker(head, f"localhost:{PORT}", host="::")
    for address in (f"{head.ipv4()}:{PORT}", f"[{head.ipv6()}]:{PORT}"):
        _reads_all(service, trainer, address)


def test_mapped_ports_are_advertised(network: Network, service: Service) -> None:
    """Trainers are in another network than the servers, and reach them through a gateway."""
    head, worker = network.host("head", [0]), network.host("worker", [0])
    gateway, trainer = network.host("gateway", [0, 1]), network.host("trainer", [1])
    service.dispatcher(head)
    service.worker(
        worker,
        f"{head.ipv4()}:{PORT}",
        port=7001,
        data_transfer_address=f"{gateway.ipv4(1)}:8001",
    )
    for port, target in ((6050, f"{head.ipv4()}:{PORT}"), (8001, f"{worker.ipv4()}:7001")):
        words = ("-m", "tests.network.forwarder", f"{gateway.ipv4(1)}:{port}", target)
        service.start(gateway, *words).wait_for("serves at")
    _reads_all(service, trainer, f"{gateway.ipv4(1)}:6050")
