"""Trainers and workers whose dispatcher is away for a moment, and comes back on its journal."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import AlreadyExistsError
from stoker.service import DispatchServer, WorkerServer
from stoker.service.process.clock import CLOCK, Clock
from tests.manual_clock import ManualClock
from tests.serving import DEADLINE, Service, eventually, iterator_with_deadline, read

COUNT = 2_000


class Cluster:
    """A dispatcher with a journal, which can be replaced, and workers."""

    def __init__(self, work_dir: Path, stack: ExitStack, clock: Clock = CLOCK) -> None:
        self.clock = clock
        self.target = "localhost:0"
        self._work_dir, self._stack = work_dir, stack
        self.start()

    def start(self) -> None:
        port = int(self.target.rpartition(":")[2])
        self.dispatcher = self._stack.enter_context(
            DispatchServer(
                port=port, work_dir=str(self._work_dir), fault_tolerant_mode=True, clock=self.clock
            )
        )
        self.target = self.dispatcher.target.removeprefix("grpc://")

    def stop(self) -> None:
        self.dispatcher.stop()

    def add_worker(self, **fields: Any) -> WorkerServer:
        return self._stack.enter_context(
            WorkerServer(dispatcher_address=self.target, clock=self.clock, **fields)
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def _numbers(cluster: Cluster, **options: Any) -> stoker.Dataset:
    return stoker.Dataset.range(COUNT).distribute(
        cluster, processing_mode="distributed_epoch", **options
    )


def test_iterator_made_during_an_outage_waits(cluster: Cluster) -> None:
    cluster.add_worker()
    numbers = _numbers(cluster)
    cluster.stop()
    with iterator_with_deadline(numbers) as iterator:
        cluster.start()
        assert sorted(iterator) == list(range(COUNT))


def test_close_during_an_outage_is_short_and_loses_nothing(tmp_path: Path) -> None:
    """The worker is given back what was not consumed; the client is released by its lease."""
    clock = ManualClock()
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack, clock)
        cluster.add_worker()
        first = _numbers(cluster, job_name="one").iterator()
        got = [next(first) for _ in range(10)]
        cluster.stop()
        closing = threading.Thread(target=first.close)
        closing.start()
        for _ in range(4):  # seconds, each when the thread has had time to wait
            closing.join(0.5)
            clock.advance(1.0)
        closing.join(DEADLINE)
        assert not closing.is_alive()
        stack.enter_context(clock.running())
        cluster.start()
        got += read(_numbers(cluster, job_name="one"))
    assert sorted(got) == list(range(COUNT))


def test_dataset_can_be_registered_during_an_outage(cluster: Cluster) -> None:
    cluster.add_worker()
    cluster.stop()
    found: list[str] = []

    def register() -> None:
        found.append(stoker.service.register_dataset(cluster.target, stoker.Dataset.range(5)))

    registering = threading.Thread(target=register)
    registering.start()
    cluster.start()
    registering.join(timeout=30)
    assert len(found) == 1


def test_new_worker_waits_for_the_address_of_its_predecessor(cluster: Cluster) -> None:
    predecessor = cluster.add_worker()
    stopped = threading.Timer(0.3, predecessor.stop)
    stopped.start()
    cluster.add_worker(worker_address=predecessor.address)
    stopped.join()
    assert eventually(lambda: cluster.dispatcher.num_workers() == 1)


def test_worker_at_the_address_of_a_live_one_fails() -> None:
    # Heartbeats every 5 s: a busy machine may delay those of every second.
    clock = ManualClock()
    with Service(1, worker_timeout_ms=60_000, clock=clock) as service:
        address = service.workers[0].address
        error = f"another worker serves {address}"
        with clock.running(), pytest.raises(AlreadyExistsError, match=error):
            service.add_worker(worker_address=address, peer_timeout_ms=1000)
        assert service.dispatcher.num_workers() == 1
