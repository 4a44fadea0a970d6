"""BEHAVIOUR.md, Faults: workers that are added, stopped, restarted or stuck during reading."""

import os
import time
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest

from stoker import Dataset
from stoker.service import distribute
from tests.serving import eventually, read, tasks_of

OFF, DYNAMIC = "parallel_epochs", "distributed_epoch"


@pytest.mark.parametrize("workers", [1, 3])
def test_a_worker_that_is_added_yields_the_whole_range_too(serve, workers):
    """The first one has computed everything, but the client has not read it."""
    service = serve(1)
    with Dataset.range(100).apply(distribute(OFF, service.target)).iterator() as iterator:
        found = read(iterator, 50)
        for _ in range(workers):
            service.add_worker()
        assert eventually(lambda: tasks_of(iterator) == 1 + workers)
        found += read(iterator)
    assert Counter(found) == dict.fromkeys(range(100), 1 + workers)


def test_stopped_workers_keep_no_outstanding_request(serve):
    service = serve(5)
    dataset = Dataset.range(2**55).apply(
        distribute(OFF, service.target, max_outstanding_requests=1)
    )
    with dataset.iterator() as iterator:
        zeros = 0
        while zeros < 5:
            zeros += read(iterator, 1) == [0]
        for worker in service.workers[:4]:
            worker.stop()
        assert len(read(iterator, 1000)) == 1000


@pytest.mark.parametrize("same_port", [True, False])
def test_a_restarted_worker_starts_the_range_anew(serve, same_port):
    service = serve(1)
    with Dataset.range(10**9).apply(distribute(OFF, service.target)).iterator() as iterator:
        assert read(iterator, 50) == list(range(50))
        port = int(service.workers[0].address.rpartition(":")[2])
        service.workers[0].stop()
        service.add_worker(port=port if same_port else 0)
        while read(iterator, 1) != [0]:  # elements that had arrived come first
            pass
        assert read(iterator, 50) == list(range(1, 51))


def test_a_large_dataset_reaches_a_worker_that_comes_later(serve):
    service = serve(0)
    values = np.ones((2, 1000, 1000), np.float32)
    with Dataset.from_tensors(values).distribute(service.target).iterator() as iterator:
        assert eventually(lambda: service.state.clients)
        service.add_worker()
        [found] = read(iterator)
    assert np.array_equal(found, values)


@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_a_stuck_worker_does_not_stop_the_others(serve, tmp_path, mode):
    """One of six never ends its first element, and it keeps no outstanding request."""
    stuck, gate = tmp_path / "stuck", tmp_path / "open"

    def block_the_first(number: int) -> int:
        with suppress(FileExistsError):
            os.close(os.open(stuck, os.O_CREAT | os.O_EXCL))
            while not gate.exists():
                time.sleep(0.01)
        return number

    dataset = Dataset.range(10).map(block_the_first).repeat()
    dataset = dataset.apply(distribute(mode, serve(6).target, max_outstanding_requests=1))
    try:
        with dataset.iterator() as iterator:
            assert len(read(iterator, 100)) == 100
            assert stuck.exists()
    finally:
        gate.touch()
