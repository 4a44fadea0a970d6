"""Data connections whose packets vanish: both ends notice, and nothing is lost."""

import sys
import time
from typing import Any

import pytest

import stoker
from stoker.wire.transports.tcp import TcpConnection
from tests.serving import Service, iterator_with_deadline
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
