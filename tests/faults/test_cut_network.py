"""Data connections whose packets vanish: both ends notice, and nothing is lost."""

import signal
import subprocess
import sys
import time
from functools import partial
from typing import Any

import pytest

import stoker
from stoker.wire.transports.tcp import TcpConnection
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


_TRAINER = """
import sys
import numpy as np
import stoker

numbers = stoker.Dataset.range(30).map(lambda x: np.full(1 << 22, x))
distributed = numbers.distribute(
    sys.argv[1], processing_mode="parallel_epochs", data_transfer_protocol="tcp"
)
got = []
for array in distributed:
    got.append(int(array[0]))
    if len(got) == 1:
        print("reading", flush=True)
assert got == list(range(30)), got
"""


def _has_sent(reader: Any, frames: int) -> bool:
    """Return whether a worker has begun to send more than that many frames."""
    return bool(reader.next_number > frames)


def test_stopped_trainer_is_disconnected_and_misses_nothing() -> None:
    """Its kernel acknowledges data until its buffers are full: less than one element here."""
    worker = {"peer_timeout_ms": 1_000, "buffer_bytes": 256 << 20}
    with Service(1, worker=worker) as service:
        command = [sys.executable, "-c", _TRAINER, service.target]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as trainer:
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == b"reading\n"
            [task] = service.tasks
            [reader] = task.readers.values()
            try:
                # Between two frames nothing is unacknowledged: stop it again, in the next one.
                for _ in range(20):
                    sent = reader.next_number
                    assert eventually(partial(_has_sent, reader, sent))
                    trainer.send_signal(signal.SIGSTOP)
                    if eventually(lambda: reader.connection is None, 3.0):
                        break
                    trainer.send_signal(signal.SIGCONT)
                assert reader.connection is None
            finally:
                trainer.send_signal(signal.SIGCONT)
            assert trainer.wait(30) == 0
