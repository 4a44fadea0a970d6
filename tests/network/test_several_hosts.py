"""An epoch over hosts that only a network connects."""

from pathlib import Path

import pytest

from tests.network.namespaces import Network
from tests.network.processes import PORT, Service, result_of

FAR = "10.99.0.1"
"""The worker's address on the distant link."""

pytestmark = [pytest.mark.network, pytest.mark.slow]


def test_epoch_over_hosts_is_read_exactly_once_by_tcp(network: Network, service: Service) -> None:
    head, first, second, trainer = map(network.host, ["head", "first", "second", "trainer"])
    dispatcher = f"{head.ipv4()}:{PORT}"
    service.dispatcher(head)
    service.workers([first, second], dispatcher)
    reading = service.trainer(trainer, dispatcher, elements=300, size=100_000, seconds=0.001)
    found = result_of(reading)
    assert (found.elements, found.lost, found.error) == (list(range(300)), 0, "")
    assert found.shared_memory_bytes == 0
    for worker in (first, second):
        reading.wait_for(rf"worker {worker.ipv4()}:\d+ is read over tcp: .*it is on another host")


@pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no /dev/net/tun")
def test_epoch_over_a_distant_and_lossy_link_is_complete(
    network: Network, service: Service
) -> None:
    """A round trip of 20 ms, and every hundredth packet is lost."""
    worker, trainer = map(network.host, ["worker", "trainer"])
    words = ("0.01", "0.01", "1400", worker.namespace, trainer.namespace)
    link = service.start(network.host("link"), "-m", "tests.network.delayed_link", *words)
    link.wait_for("serves at far")
    service.dispatcher(worker)
    service.worker(worker, f"localhost:{PORT}", worker_address=FAR)
    found = result_of(service.trainer(trainer, f"{FAR}:{PORT}", elements=100, size=100_000))
    assert (found.elements, found.lost, found.error) == (list(range(100)), 0, "")
