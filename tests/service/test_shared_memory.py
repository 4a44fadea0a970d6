"""Elements in shared memory, from the pipeline to the training loop."""

import logging
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.service import DispatchServer, WorkerServer
from tests.manual_clock import ManualClock
from tests.serving import Service, eventually, read

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd needs Linux")

BATCH_BYTES = 16 * 10_000 * 8


def batches() -> stoker.Dataset:
    return stoker.Dataset.range(16 * 40).map(lambda x: np.full(10_000, x)).batch(16)


@pytest.fixture
def dispatcher() -> Iterator[DispatchServer]:
    with DispatchServer() as dispatcher:
        yield dispatcher


@pytest.fixture
def worker(dispatcher: DispatchServer) -> Iterator[WorkerServer]:
    with WorkerServer(dispatcher_address=dispatcher.target) as worker:
        yield worker


def iterator_over_shm(dataset: stoker.Dataset, dispatcher: DispatchServer) -> stoker.Iterator:
    distributed = dataset.distribute(
        dispatcher.target, processing_mode="parallel_epochs", data_transfer_protocol="shm"
    )
    return distributed.iterator()


def test_statistics_show_shared_and_lent_bytes(
    dispatcher: DispatchServer, worker: WorkerServer
) -> None:
    with iterator_over_shm(batches(), dispatcher) as iterator:
        kept = [next(iterator) for _ in range(3)]
        assert iterator.stats()["shared_memory_bytes"] >= 3 * BATCH_BYTES
        stats = worker.stats()
        assert stats["shared_memory_limit"] == 256 << 20
        assert 3 * BATCH_BYTES <= stats["shared_memory_lent"] <= stats["shared_memory_bytes"]
        kept.clear()
        rest = sum(1 for _ in iterator)
        assert rest == 37
        assert iterator.stats()["shared_memory_bytes"] == 0
    assert eventually(lambda: worker.stats()["shared_memory_lent"] == 0)
    assert worker.stats()["shared_memory_refused"] == 0


def test_batches_are_assembled_in_shared_memory(
    dispatcher: DispatchServer, worker: WorkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool: Any = worker._shell.segments  # type: ignore[union-attr]
    lent_in_place = []
    lend = pool.lend_in_place

    def recording_lend(*arguments: Any) -> Any:
        loan = lend(*arguments)
        lent_in_place.append(loan is not None)
        return loan

    monkeypatch.setattr(pool, "lend_in_place", recording_lend)
    with iterator_over_shm(batches().prefetch(2), dispatcher) as iterator:
        for number, batch in enumerate(iterator):
            assert batch[:, -1].tolist() == list(range(16 * number, 16 * number + 16))
    # The first were allocated before a client could map them.
    assert sum(lent_in_place) >= 10


def test_writes_in_place_do_not_affect_other_elements(
    dispatcher: DispatchServer, worker: WorkerServer
) -> None:
    cached = batches().cache().repeat(2).prefetch(1)
    with iterator_over_shm(cached, dispatcher) as iterator:
        for number, batch in enumerate(iterator):
            assert batch[:, 0].tolist() == list(range(16 * (number % 40), 16 * (number % 40) + 16))
            batch[:] = -1
    assert number == 79


def test_trainer_that_keeps_all_elements_gets_copies(dispatcher: DispatchServer) -> None:
    with WorkerServer(
        dispatcher_address=dispatcher.target, shared_memory_bytes=8 * BATCH_BYTES
    ) as worker:
        with iterator_over_shm(batches(), dispatcher) as iterator:
            kept = list(iterator)
        assert [batch[0, 0] for batch in kept] == list(range(0, 640, 16))
        assert worker.stats()["shared_memory_refused"] > 0
        assert worker.stats()["shared_memory_bytes"] <= 8 * BATCH_BYTES


def test_tcp_replaces_disabled_shared_memory(
    dispatcher: DispatchServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "stoker.client")
    with WorkerServer(dispatcher_address=dispatcher.target, shared_memory_bytes=0) as worker:
        with iterator_over_shm(batches(), dispatcher) as iterator:
            assert sum(1 for _ in iterator) == 40
            assert iterator.stats()["shared_memory_bytes"] == 0
        assert worker.stats() == {"tasks": worker.num_tasks()}
    assert [record for record in caplog.messages if "'shm' cannot be used" in record]


def test_shared_memory_is_released_after_the_last_epoch():
    clock = ManualClock()
    with Service(1, clock=clock) as service:
        [worker] = service.workers
        dataset = stoker.Dataset.range(64).map(lambda x: np.full(100_000, x, np.uint8)).batch(8)
        for _ in range(2):
            found = read(dataset.distribute(service.dispatcher, data_transfer_protocol="shm"))
            assert [int(batch[0, 0]) for batch in found] == list(range(0, 64, 8))
            assert clock.eventually(lambda: not worker.stats()["shared_memory_bytes"])
            assert int(found[0].sum()) == 100_000 * 28
