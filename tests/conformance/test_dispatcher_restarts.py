"""BEHAVIOUR.md, Faults: a dispatcher with a journal restarts, and reading goes on."""

from collections import Counter

import pytest

from stoker import Dataset
from stoker.service import distribute, from_dataset_id, register_dataset
from tests.serving import Service, read

OFF, DYNAMIC = "parallel_epochs", "distributed_epoch"


def _restart_worker(service: Service) -> None:
    """Replace the only worker by one with the same port."""
    port = int(service.workers[0].address.rpartition(":")[2])
    service.workers.pop(0).stop()
    service.add_worker(port=port)


def test_a_journal_changes_nothing_for_readers(serve, journal):
    dataset = Dataset.range(10).apply(distribute(OFF, serve(1, **journal).target))
    assert read(dataset) == list(range(10))


def test_a_dataset_registered_before_a_restart_is_read_after_it(serve, journal):
    service = serve(1, **journal)
    dataset_id = register_dataset(service.target, Dataset.range(100))
    dataset = Dataset.range(100).apply(distribute(OFF, service.target))
    service.restart_dispatcher(**journal)
    assert read(from_dataset_id(OFF, service.target, dataset_id)) == list(range(100))
    assert read(dataset) == list(range(100))


@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_reading_goes_on_in_order_over_a_restart(serve, journal, mode):
    service = serve(1, **journal)
    dataset = Dataset.range(300_000).map(lambda x: x).apply(distribute(mode, service.target))
    with dataset.iterator() as iterator:
        found = read(iterator, 1000)
        service.restart_dispatcher(**journal)
        found += read(iterator)
    assert found == list(range(300_000))


def test_many_restarts_lose_and_repeat_nothing(serve, journal):
    service = serve(1, **journal)
    dataset = Dataset.range(20_000).repeat(5).distribute(service.target, DYNAMIC)
    with dataset.iterator() as iterator:
        found = []
        for _ in range(4):
            found += read(iterator, 20_000)
            service.restart_dispatcher(**journal)
        found += read(iterator)
    assert Counter(found) == dict.fromkeys(range(20_000), 5)


def test_epochs_before_and_after_a_restart_are_whole(serve, journal):
    service = serve(1, **journal)
    datasets = [Dataset.range(n).apply(distribute(OFF, service.target)) for n in (10, 11, 12)]
    for dataset in datasets:
        assert read(dataset)[0] == 0
        service.restart_dispatcher(**journal)
    assert [read(dataset) for dataset in datasets] == [list(range(n)) for n in (10, 11, 12)]


def test_worker_and_dispatcher_may_both_restart(serve, journal):
    service = serve(1, **journal)
    dataset = Dataset.range(100).apply(distribute(OFF, service.target))
    for _ in range(2):
        service.restart_dispatcher(**journal)
        _restart_worker(service)
        assert read(dataset) == list(range(100))


def test_two_workers_and_the_dispatcher_may_restart(serve, journal):
    service = serve(2, **journal)
    dataset = Dataset.range(10**9).apply(distribute(OFF, service.target))
    with dataset.iterator() as iterator:
        read(iterator, 10)
        service.restart_dispatcher(**journal)
        _restart_worker(service)
        _restart_worker(service)
        zeros = 0
        while zeros < 2:  # each new worker starts from the beginning
            zeros += read(iterator, 1) == [0]


def test_a_local_iterator_starts_from_the_beginning_after_a_restart(serve, journal):
    service = serve(1, **journal)
    dataset = Dataset.range(10**6).repeat()
    dataset = dataset.apply(distribute(OFF, service.target, "one", target_workers="LOCAL"))
    for _ in range(2):
        with dataset.iterator() as iterator:
            assert read(iterator, 10) == list(range(10))
        service.restart_dispatcher(**journal)
