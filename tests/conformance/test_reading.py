"""BEHAVIOUR.md, Reading."""

import logging
import threading
import time
from collections import Counter
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest

import stoker
from stoker.service import ShardingPolicy, distribute
from tests.manual_clock import ManualClock
from tests.serving import DEADLINE, Service, eventually, read


def test_one_worker_yields_a_range_as_ordered_ints(serve, transport):
    dataset = stoker.Dataset.range(10).apply(
        distribute(ShardingPolicy.OFF, serve().target, data_transfer_protocol=transport)
    )
    found = read(dataset)
    assert found == list(range(10))
    assert {type(x) for x in found} == {int}


def test_parallel_epochs_yield_the_dataset_per_worker(serve, transport):
    dataset = stoker.Dataset.range(1000).apply(
        distribute("parallel_epochs", serve(3).target, data_transfer_protocol=transport)
    )
    assert Counter(read(dataset)) == Counter(list(range(1000)) * 3)


def test_dynamic_splits_the_dataset_among_workers(serve, transport):
    dataset = stoker.Dataset.range(1000).apply(
        distribute("distributed_epoch", serve(3).target, data_transfer_protocol=transport)
    )
    assert sorted(read(dataset)) == list(range(1000))


def _orders_of_two_workers(service: Service, seed: int | None) -> list[list[int]]:
    dataset = (
        stoker.Dataset.range(64)
        .shuffle(64, seed=seed)
        .batch(64)
        .apply(distribute("parallel_epochs", service.target))
    )
    return [batch.tolist() for batch in read(dataset)]


def test_unseeded_shuffle_differs_between_workers(serve):
    first, second = _orders_of_two_workers(serve(2), None)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(64))


def test_seeded_shuffle_agrees_between_workers(serve):
    first, second = _orders_of_two_workers(serve(2), 7)
    assert first == second
    assert sorted(first) == list(range(64)) != first


def test_seed_in_options_makes_workers_agree(serve):
    dataset = (
        stoker.Dataset.range(64)
        .shuffle(64)
        .batch(64)
        .with_options(stoker.Options(seed=3))
        .apply(distribute("parallel_epochs", serve(2).target))
    )
    first, second = read(dataset)
    assert first.tolist() == second.tolist() != list(range(64))


def test_distributed_dataset_keeps_its_options(serve):
    options = stoker.Options(seed=3, threads=1)
    dataset = stoker.Dataset.range(64).with_options(options)
    distributed = dataset.distribute(serve().target).shuffle(64)
    assert distributed.options() == options
    assert read(distributed) != read(distributed)
    with distributed.iterator(epoch=4) as one, distributed.iterator(epoch=4) as other:
        assert one is not other
    again = dataset.distribute(serve().target).shuffle(64)
    assert read(distributed.iterator(epoch=5)) == read(again.iterator(epoch=5))


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_each_iter_is_a_new_iteration(serve, mode):
    dataset = stoker.Dataset.range(10).apply(distribute(mode, serve().target))
    for _ in range(3):
        assert read(dataset) == list(range(10))


def test_unseeded_shuffle_differs_between_epochs(serve):
    dataset = stoker.Dataset.range(64).shuffle(64).distribute(serve().target)
    first, second = read(dataset), read(dataset)
    assert sorted(first) == sorted(second) == list(range(64))
    assert first != second


def test_abandoned_epoch_does_not_shorten_the_next(serve):
    dataset = stoker.Dataset.range(100).distribute(serve().target)
    with dataset.iterator() as iterator:
        assert next(iterator) == 0
    assert sorted(read(dataset)) == list(range(100))


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_repeat_after_distribute_starts_new_iterations(serve, mode):
    dataset = stoker.Dataset.range(10).apply(distribute(mode, serve().target)).repeat(3)
    assert read(dataset) == list(range(10)) * 3


def test_infinite_repeat_after_distribute(serve):
    dataset = stoker.Dataset.range(3).distribute(serve().target).repeat()
    assert read(dataset, 10) == [0, 1, 2] * 3 + [0]


def test_same_explicit_epoch_is_the_same_iteration(serve):
    dataset = stoker.Dataset.range(10).distribute(
        serve().target, processing_mode="distributed_epoch"
    )
    with dataset.iterator(epoch=5) as one, dataset.iterator(epoch=5) as other:
        together = sorted(read(one) + read(other))
    assert together == list(range(10))
    assert read(dataset.iterator(epoch=6)) == list(range(10))


def test_interleaved_reads_of_datasets_are_independent(serve):
    target = serve().target
    datasets = [
        stoker.Dataset.range(k, k + 50).apply(distribute("parallel_epochs", target))
        for k in (0, 100, 200)
    ]
    with ExitStack() as stack:
        iterators = [stack.enter_context(dataset.iterator()) for dataset in datasets]
        found = [[next(iterator) for iterator in iterators] for _ in range(50)]
    assert found == [[i, 100 + i, 200 + i] for i in range(50)]


def test_iterators_of_one_dataset_are_independent(serve):
    dataset = stoker.Dataset.range(50).distribute(serve().target)
    with dataset.iterator() as one, dataset.iterator() as other:
        assert list(zip(one, other, strict=True)) == [(i, i) for i in range(50)]


def test_dataset_distributed_in_a_user_function(serve):
    target = serve(2).target

    def inner(i):
        return stoker.Dataset.range(10 * i, 10 * i + 10).distribute(target)

    assert sorted(read(stoker.Dataset.range(3).flat_map(inner))) == list(range(30))


def test_distributed_dataset_returned_again_is_a_new_iteration(serve):
    inner = stoker.Dataset.range(5).distribute(serve().target)
    assert read(stoker.Dataset.range(3).flat_map(lambda _: inner)) == list(range(5)) * 3


def test_nodes_before_distribute_run_on_workers(serve):
    here = threading.current_thread().name

    def where(*x):
        return (*x, threading.current_thread().name)

    dataset = stoker.Dataset.range(4).map(where).distribute(serve().target).map(where)
    for _, before, after in read(dataset):
        assert before.startswith("stoker-")
        assert after == here


def test_worker_may_be_a_client_of_another_cluster(serve, transport):
    inner, outer = serve(2), serve(1)
    dataset = (
        stoker.Dataset.range(20)
        .map(lambda x: x + 1)
        .apply(distribute("distributed_epoch", inner.target, data_transfer_protocol=transport))
        .map(lambda x: x * 10)
        .apply(distribute("parallel_epochs", outer.target, data_transfer_protocol=transport))
        .map(lambda x: x + 3)
    )
    for _ in range(2):
        assert sorted(read(dataset)) == [(x + 1) * 10 + 3 for x in range(20)]


def test_worker_may_be_a_client_of_its_own_cluster(serve):
    target = serve(1).target
    dataset = stoker.Dataset.range(20).distribute(target).map(lambda x: -x)
    dataset = dataset.apply(distribute("parallel_epochs", target))
    assert sorted(read(dataset)) == sorted(-x for x in range(20))


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_batch_that_drops_everything_yields_nothing(serve, mode):
    dataset = stoker.Dataset.range(3).batch(5, drop_remainder=True)
    assert read(dataset.apply(distribute(mode, serve(2).target))) == []


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_empty_dataset_yields_nothing(serve, mode):
    dataset = stoker.Dataset.range(0).apply(distribute(mode, serve(2).target))
    assert read(dataset) == []
    assert read(stoker.Dataset.range(9).take(0).distribute(serve().target)) == []


def test_captured_lookup_table_is_sent_with_its_function(serve, transport):
    table = {i: f"word {i}" for i in range(100)}
    dataset = stoker.Dataset.range(100).map(lambda i: table[i])
    dataset = dataset.distribute(serve().target, data_transfer_protocol=transport)
    assert read(dataset) == list(table.values())


def test_large_captured_array_is_within_message_limits(serve):
    array = np.arange(8 << 17)
    dataset = stoker.Dataset.range(3).map(lambda i: int(array[-1 - i]))
    assert read(dataset.distribute(serve().target)) == [int(array[-1 - i]) for i in range(3)]


def test_client_waits_for_servers_started_later(serve):
    earlier = serve(0)
    port = earlier.address[1]
    earlier.close()
    dataset = stoker.Dataset.range(10).distribute(f"grpc://localhost:{port}")
    found: list[list[int]] = []
    reader = threading.Thread(target=lambda: found.append(read(dataset)))
    reader.start()
    service = serve(0, port=port)
    assert eventually(lambda: service.state.clients)
    assert not found
    service.add_worker()
    reader.join(DEADLINE)
    assert found == [list(range(10))]


def test_client_warns_that_it_waits_for_the_dispatcher(serve, caplog, closed_port):
    target = f"localhost:{closed_port}"
    service = SimpleNamespace(target=target, clock=ManualClock())
    dataset = stoker.Dataset.range(10).distribute(service, connect_timeout=11)
    with (
        service.clock.running(),
        caplog.at_level(logging.WARNING, "stoker"),
        pytest.raises(stoker.errors.UnavailableError, match=f"no dispatcher answered at {target}"),
    ):
        read(dataset)
    assert f"waiting for the dispatcher at {target}" in caplog.text


def test_client_warns_that_it_waits_for_a_worker(serve, caplog):
    clock = ManualClock()
    service = serve(0, clock=clock)
    dataset = stoker.Dataset.range(3).distribute(service.dispatcher)
    with caplog.at_level(logging.WARNING, "stoker.client"):
        found: list[list[int]] = []
        reader = threading.Thread(target=lambda: found.append(read(dataset)))
        reader.start()
        warning = "waiting for the dispatcher to find a worker"
        assert clock.eventually(lambda: warning in caplog.text)
        service.add_worker()
        reader.join(DEADLINE)
    assert found == [[0, 1, 2]]


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
@pytest.mark.parametrize("workers", [1, 4])
def test_one_outstanding_request_reads_many_workers(serve, transport, workers, mode):
    settings = {"max_outstanding_requests": 1, "data_transfer_protocol": transport}
    dataset = stoker.Dataset.range(40).apply(distribute(mode, serve(workers).target, **settings))
    times = workers if mode == "parallel_epochs" else 1
    assert sorted(read(dataset)) == sorted(list(range(40)) * times)


def test_one_outstanding_request_is_one_element_in_flight(serve):
    service = serve(1, worker={"buffer_bytes": 1})
    dataset = (
        stoker.Dataset.range(100)
        .map(lambda x: np.full(1000, x))
        .distribute(service.target, processing_mode="distributed_epoch", max_outstanding_requests=1)
    )
    with dataset.iterator() as iterator:
        assert next(iterator)[0] == 0
        [task] = service.tasks
        [reader] = task.readers.values()
        assert eventually(lambda: reader.kept_positions == 1)
        assert next(iterator)[0] == 1
        assert reader.kept_positions <= 1


def test_as_numpy_iterator_reads_the_service(serve):
    dataset = stoker.Dataset.range(4).batch(2).distribute(serve().target)
    assert [x.tolist() for x in dataset.as_numpy_iterator()] == [[0, 1], [2, 3]]


def test_closed_iterator_raises_and_leaves_no_client(serve):
    service = serve()
    iterator = stoker.Dataset.range(10).distribute(service.target).iterator()
    assert next(iterator) == 0
    iterator.close()
    assert eventually(lambda: not service.state.clients)
    with pytest.raises(stoker.errors.FailedPreconditionError, match="closed"):
        next(iterator)


def test_exhausted_iterator_leaves_no_client_or_task(serve):
    service = serve(2)
    assert sorted(read(stoker.Dataset.range(10).distribute(service.target))) == list(range(10))
    assert eventually(lambda: not service.state.clients)
    assert eventually(lambda: not any(worker.num_tasks() for worker in service.workers))


def test_late_worker_joins_the_job(serve):
    service = serve(1)
    dataset = stoker.Dataset.range(10).repeat().apply(distribute("parallel_epochs", service.target))
    with dataset.iterator() as iterator:
        assert next(iterator) == 0
        service.add_worker()
        assert eventually(lambda: service.workers[1].num_tasks() == 1)
        assert read(iterator, 100)
    assert eventually(lambda: not service.state.clients)


def test_late_worker_starts_from_the_beginning_under_off(serve, tmp_path):
    gate = tmp_path / "open"

    def wait_at_the_gate(number: int) -> int:
        while number >= 25_000 and not gate.exists():
            time.sleep(0.01)
        return number

    service = serve(1)
    dataset = stoker.Dataset.range(50_000).map(wait_at_the_gate)
    with dataset.apply(distribute("parallel_epochs", service.target)).iterator() as iterator:
        found = [next(iterator)]
        service.add_worker()
        assert eventually(lambda: service.workers[1].num_tasks() == 1)
        gate.touch()
        found += read(iterator)
    assert Counter(found) == Counter(list(range(50_000)) * 2)
