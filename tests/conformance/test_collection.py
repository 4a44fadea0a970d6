"""BEHAVIOUR.md, Jobs: tasks and jobs that nobody reads end; leases; closing returns."""

import sys
import threading
import time
import traceback

import pytest

from stoker import Dataset
from stoker.errors import FailedPreconditionError
from stoker.service import distribute
from stoker.service.client.shell import ServiceStream
from stoker.service.dispatcher.iterations.iterations import Iterations
from tests.manual_clock import ManualClock
from tests.serving import DEADLINE, eventually, read

OFF, DYNAMIC = "parallel_epochs", "distributed_epoch"
SOON = {"job_gc_check_interval_ms": 10, "job_gc_timeout_ms": 10}


@pytest.mark.parametrize("name", [None, "one"])
def test_the_task_of_a_dropped_iterator_ends(serve, name):
    service = serve(1, **SOON)
    dataset = Dataset.range(10**9).apply(distribute(OFF, service.target, job_name=name))
    iterator = iter(dataset)
    assert next(iterator) == 0
    assert service.workers[0].num_tasks() == 1
    del iterator
    assert eventually(lambda: service.workers[0].num_tasks() == 0)


def test_only_the_job_without_clients_is_collected(serve):
    service = serve(1, **SOON)
    datasets = [
        Dataset.range(10**9).apply(distribute(OFF, service.target, job_name=name))
        for name in ("one", "two", "two")
    ]
    one, two, last = [dataset.iterator() for dataset in datasets]
    with last:
        for iterator in (one, two, last):
            next(iterator)
        assert service.workers[0].num_tasks() == 2
        one.close()
        two.close()
        assert eventually(lambda: service.workers[0].num_tasks() == 1)
        assert list(service.state.jobs) == ["two"]
        assert len(read(last, 1000)) == 1000


def test_a_dynamic_job_without_clients_keeps_its_elements(serve, monkeypatch):
    collect, collections = Iterations.collect, []

    def counted(self, now):
        collections.append(now)
        collect(self, now)

    monkeypatch.setattr(Iterations, "collect", counted)
    service = serve(1, **SOON)
    dataset = Dataset.range(100).apply(distribute(DYNAMIC, service.target, job_name="one"))
    with dataset.iterator() as iterator:
        first = read(iterator, 10)
    assert eventually(lambda: not service.state.clients)
    left = len(collections)
    assert eventually(lambda: len(collections) > left + 5)  # every 10 ms
    assert service.workers[0].num_tasks() == 1
    again = Dataset.range(100).apply(distribute(DYNAMIC, service.target, job_name="one"))
    assert sorted(first + read(again)) == list(range(100))


def test_a_collected_job_starts_from_the_beginning(serve):
    service = serve(3, **SOON)
    for _ in range(3):
        dataset = Dataset.range(1000).apply(distribute(OFF, service.target, job_name="one"))
        with dataset.iterator() as iterator:
            assert sorted(read(iterator))[:6] == [0, 0, 0, 1, 1, 1]
        assert eventually(lambda: not any(worker.num_tasks() for worker in service.workers))
        assert eventually(lambda: not service.state.jobs)


def test_a_client_that_has_not_read_keeps_its_lease(serve):
    clock = ManualClock()
    service = serve(1, client_timeout_ms=600, clock=clock)
    with Dataset.range(10).distribute(service.dispatcher).iterator() as iterator:
        assert eventually(lambda: service.state.clients)
        clock.advance(1.0)  # longer than the lease
        assert service.state.clients
        assert read(iterator) == list(range(10))


@pytest.mark.parametrize("prefetched", [False, True])
def test_closing_does_not_wait_for_a_slow_element(serve, tmp_path, prefetched):
    """The user waits for the element in another thread, or a thread of `prefetch` does."""
    gate = tmp_path / "open"

    def wait_at_the_gate(number: int) -> int:
        while number and not gate.exists():
            time.sleep(0.01)
        return number

    dataset = Dataset.range(2).map(wait_at_the_gate).distribute(serve(1).target)
    iterator = (dataset.prefetch(1) if prefetched else dataset).iterator()
    assert next(iterator) == 0
    found: list[object] = []

    def read_on() -> None:
        try:
            found.extend(iterator)
        except FailedPreconditionError as error:
            found.append(str(error))

    reader = threading.Thread(target=read_on)
    if not prefetched:
        reader.start()
    assert eventually(_someone_waits)
    began = time.monotonic()
    iterator.close()
    if not prefetched:
        reader.join(DEADLINE)
        assert not reader.is_alive()
    assert time.monotonic() - began < 5
    # Not the end: the thread would take what it has for a whole epoch.
    assert found == ([] if prefetched else ["this iterator was closed while it was read"])
    gate.touch()


def _someone_waits() -> bool:
    """Return whether a thread waits for an element of a job."""
    stacks = sys._current_frames().values()
    return any(
        frame.f_code is ServiceStream._wait_item.__code__
        for stack in stacks
        for frame, _ in traceback.walk_stack(stack)
    )
