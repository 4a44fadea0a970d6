"""Data connections whose packets vanish: both ends notice, and nothing is lost."""

import sys
import threading
import time
from contextlib import ExitStack
from itertools import repeat
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.wire.transports.tcp import TcpConnection
from tests.faults.proxy import CuttingProxy
from tests.serving import Service, eventually, iterator_with_deadline
from tests.wire.cutting import cut

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="drops packets with a socket filter"
)

PEER_TIMEOUT_MS = 2_000


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return all TCP connections that are made, of both ends."""
    made: list[Any] = []
    construct = TcpConnection.__init__

    def record(self: TcpConnection, *arguments: Any, **named: Any) -> None:
        construct(self, *arguments, **named)
        made.append(self)

    monkeypatch.setattr(TcpConnection, "__init__", record)
    return made


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_epoch_goes_on_within_the_peer_timeout_after_a_cut(
    mode: str, connections: list[Any]
) -> None:
    with Service(1, worker={"peer_timeout_ms": PEER_TIMEOUT_MS}) as service:
        distributed = stoker.Dataset.range(300_000).distribute(
            service.target, processing_mode=mode, data_transfer_protocol="tcp"
        )
        with iterator_with_deadline(distributed) as iterator:
            got = [next(iterator) for _ in range(1_000)]
            cut(*(connection._stream._socket for connection in connections))
            cut_at = time.monotonic()
            got.extend(iterator)
            seconds = time.monotonic() - cut_at
            assert iterator.stats().get("tasks_lost", 0) == 0
    assert got == list(range(300_000))
    assert len(connections) == 4, "the client connected again"
    assert seconds < PEER_TIMEOUT_MS / 1000 + 3


def test_trainer_that_stops_to_read_is_disconnected_and_misses_nothing() -> None:
    """Its kernel acknowledges data until its buffers are full: less than one element here.

    Then it announces a window of zero bytes, which is no sign that it will ever read again.
    """
    with ExitStack() as stack:
        proxy = stack.enter_context(CuttingProxy(0, repeat(1 << 60)))
        fields = {
            "data_transfer_address": f"localhost:{proxy.port}",
            "peer_timeout_ms": 1_000,
            "buffer_bytes": 256 << 20,
        }
        service = stack.enter_context(Service(1, worker=fields))
        proxy.target = int(service.workers[0].address.rpartition(":")[2])
        numbers = stoker.Dataset.range(30).map(lambda x: np.full(1 << 22, x))
        distributed = numbers.distribute(
            service.target, processing_mode="parallel_epochs", data_transfer_protocol="tcp"
        )
        iterator = stack.enter_context(iterator_with_deadline(distributed))
        got = [int(next(iterator)[0])]
        proxy.pause()
        try:
            # It reads what has arrived, so the worker has credit to send more.
            reading = threading.Thread(target=lambda: got.extend(int(x[0]) for x in iterator))
            reading.start()
            [task] = service.tasks
            [reader] = task.readers.values()
            assert eventually(lambda: reader.connection is None)
        finally:
            proxy.resume()
            reading.join(30)
        assert got == list(range(30))
        assert proxy.connections == 2, "the client connected again"
