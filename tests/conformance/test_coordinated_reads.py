"""BEHAVIOUR.md, Coordinated reads: rounds, whose elements are consecutive ones of one worker."""

import contextlib
import itertools
import re
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

from stoker import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset, Options
from stoker.compat import tf
from stoker.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from stoker.service import (
    DispatchServer,
    ShardingPolicy,
    distribute,
    from_dataset_id,
    register_dataset,
)
from tests.serving import DEADLINE, eventually

OFF, DYNAMIC = "parallel_epochs", "distributed_epoch"
ENDLESS = Dataset.range(10**9).repeat()
FINITE = Options(finite_coordinated=True)


@pytest.fixture
def consumers():
    """Open the consumers of a dataset, and close them at the end of the test."""
    with contextlib.ExitStack() as stack:

        def open_consumers(service, dataset, count, mode=OFF, indexes=None, **options):
            job = {"job_name": "job", "num_consumers": count}
            return [
                stack.enter_context(
                    dataset.apply(
                        distribute(mode, service.target, **job, consumer_index=index, **options)
                    ).iterator()
                )
                for index in (range(count) if indexes is None else indexes)
            ]

        yield open_consumers


def _read(iterators, rounds):
    """Return what each of some rounds gave, reading the consumers in turn."""
    return [[next(iterator) for iterator in iterators] for _ in range(rounds)]


def _read_to_end(iterators):
    """Return what each consumer yields until its end, read by threads at the same time."""
    found: list[list[int]] = [[] for _ in iterators]
    threads = [
        threading.Thread(target=out.extend, args=(iterator,), daemon=True)
        for out, iterator in zip(found, iterators, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * DEADLINE)
    assert not any(thread.is_alive() for thread in threads)
    return found


def _is_whole(elements):
    return all(b == a + 1 for a, b in itertools.pairwise(elements))


def _all_whole(rounds):
    return all(map(_is_whole, rounds))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_round_is_a_run_of_one_worker(serve, consumers, workers, count):
    rounds = _read(consumers(serve(workers), ENDLESS, count), 60)
    assert _all_whole(rounds)
    assert [elements[0] for elements in rounds] == [k // workers * count for k in range(60)]


def test_one_outstanding_request_is_enough_for_three_workers(serve, consumers):
    iterators = consumers(serve(3), ENDLESS, 2, max_outstanding_requests=1)
    assert _all_whole(_read(iterators, 200))


@pytest.mark.parametrize(("added", "limit"), [(1, None), (1, 1), (3, 2), (10, None)])
def test_all_workers_that_are_added_join_at_a_round(serve, consumers, added, limit):
    service = serve(3)
    iterators = consumers(service, ENDLESS, 7, max_outstanding_requests=limit)
    rounds = _read(iterators, 5)
    for _ in range(added):
        service.add_worker()

    def has_joined():
        rounds.extend(_read(iterators, 1))
        return sum(elements[0] == 0 for elements in rounds) == 3 + added

    assert eventually(has_joined)
    rounds += _read(iterators, 5)
    assert _all_whole(rounds)


@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_workers_that_are_restarted_in_turn_finish_their_rounds(serve, consumers, mode):
    service = serve(3, worker={"shutdown_quiet_period_ms": 300})
    iterators = consumers(service, ENDLESS, 5, mode)
    rounds = _read(iterators, 4)
    for k in range(3):
        service.workers[k].stop()
        rounds += _read(iterators, 10)
        service.add_worker()
        rounds += _read(iterators, 10)
    assert _all_whole(rounds)


def test_restarts_of_workers_mix_no_rounds(serve):
    """As TensorFlow's testRestartWorker: parallel reads of the consumers are out of step."""
    service = serve(3, worker={"shutdown_quiet_period_ms": 2000})
    service_api, count = tf.data.experimental.service, 5
    datasets = [
        tf.data.Dataset.range(10**9)
        .repeat()
        .apply(
            service_api.distribute(
                service_api.ShardingPolicy.OFF,
                service.target,
                "job",
                consumer_index=index,
                num_consumers=count,
            )
        )
        for index in range(count)
    ]
    interleaved = tf.data.Dataset.range(count).interleave(
        lambda index: datasets[int(index)], cycle_length=count, num_parallel_calls=count
    )
    with contextlib.closing(iter(interleaved)) as iterator:
        rounds = [[next(iterator) for _ in range(count)] for _ in range(40)]
        for k in range(3):
            service.workers[k].stop()
            rounds += [[next(iterator) for _ in range(count)] for _ in range(40)]
            service.add_worker(shutdown_quiet_period_ms=2000)
            rounds += [[next(iterator) for _ in range(count)] for _ in range(40)]
    assert _all_whole([list(map(int, elements)) for elements in rounds])


@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
@pytest.mark.parametrize("limit", [None, 1])
def test_consumers_out_of_step_leave_a_stopped_worker_together(serve, consumers, mode, limit):
    """Nobody reads while the worker stops."""
    service = serve(2, worker={"shutdown_quiet_period_ms": 200})
    iterators = consumers(service, ENDLESS, 3, mode, max_outstanding_requests=limit)
    found = [[next(each) for _ in range(10 + 50 * k)] for k, each in enumerate(iterators)]
    service.workers[0].stop()
    for out, iterator in zip(found, iterators, strict=True):
        out += [next(iterator) for _ in range(150 - len(out))]
    assert _all_whole(zip(*found, strict=True))
    for iterator in iterators:
        stats = iterator.stats()
        assert "rounds_mixed" not in stats
        # Nobody else computes the splits that the worker has begun.
        assert bool(stats["elements_lost"] + stats["splits_lost"]) == (mode == DYNAMIC)


def test_a_stopped_worker_delivers_its_computed_rounds(serve, consumers):
    """They read at the same time, so nothing is lost and all ends are equal."""
    service = serve(2, worker={"shutdown_quiet_period_ms": 10_000})
    dataset = Dataset.range(20_000).batch(10).with_options(FINITE)
    iterators = consumers(service, dataset, 2, DYNAMIC)
    first = _read(iterators, 3)
    stopping = threading.Thread(target=service.workers[0].stop)
    stopping.start()
    found = _read_to_end(iterators)
    stopping.join(DEADLINE)
    assert len(found[0]) == len(found[1])
    values = np.concatenate([*itertools.chain(*first), *found[0], *found[1]])
    assert len(set(values)) == len(values)  # nothing comes twice
    assert len(values) >= 20_000 - 2 * 20  # at most one short run for each worker


def test_a_lost_worker_mixes_at_most_the_round_in_flight(serve, consumers):
    service = serve(3)
    iterators = consumers(service, ENDLESS, 4)
    rounds = _read(iterators, 8)
    next(iterators[0])  # a round is begun
    service.workers[1].stop()
    rounds += [[-1, *(next(iterator) for iterator in iterators[1:])]]
    rounds += _read(iterators, 30)
    assert sum(not _is_whole(elements) for elements in rounds[:8] + rounds[9:]) == 0


def test_every_replica_gets_a_batch_of_the_same_bucket(serve, consumers):
    """As in TensorFlow's guide: 15 consumers, 4 workers, variable lengths."""
    count = 15

    def length(element):
        return len(element)

    dataset = (
        Dataset.range(1, 10**9)
        .map(lambda k: np.full(1 + k * 7919 % 60, k, np.int64))
        .bucket_by_sequence_length(length, [20, 40], [4, 4, 4], pad_to_bucket_boundary=False)
        .group_by_window(
            lambda batch: 0 if batch.shape[1] < 20 else 1 if batch.shape[1] < 40 else 2,
            lambda _, group: group,
            window_size=count,
        )
        .repeat()
    )
    rounds = _read(consumers(serve(4), dataset, count), 20)
    buckets = [{np.digitize(batch.shape[1], [20, 40]).item() for batch in row} for row in rounds]
    assert all(len(bucket) == 1 for bucket in buckets)
    assert {b for bucket in buckets for b in bucket} == {0, 1, 2}


# ── finite data ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("workers", [1, 3])
def test_finite_data_ends_for_all_at_the_same_step(serve, consumers, mode, limit, workers):
    dataset = Dataset.range(101).with_options(FINITE)
    iterators = consumers(serve(workers), dataset, 3, mode, max_outstanding_requests=limit)
    found = _read_to_end(iterators)
    assert len({len(elements) for elements in found}) == 1
    assert all(next(iterator, "end") == "end" for iterator in iterators)  # and stays so
    values = Counter(itertools.chain(*found))
    if mode == OFF:
        assert values == dict.fromkeys(range(99), workers)
    else:
        assert max(values.values()) == 1
        assert len(values) > 101 - 3 * workers


@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_ends_are_equal_while_workers_come_and_go(serve, consumers, mode):
    service = serve(3)
    dataset = Dataset.range(3000).map(lambda x: x).with_options(FINITE)
    iterators = consumers(service, dataset, 3, mode, max_outstanding_requests=2)
    found: list[list[int]] = [[] for _ in iterators]
    for elements in _read(iterators, 20):
        for out, element in zip(found, elements, strict=True):
            out.append(element)
    service.workers[0].stop()
    service.add_worker()
    service.workers[1].stop()
    for out, rest in zip(found, _read_to_end(iterators), strict=True):
        out.extend(rest)
    assert len({len(elements) for elements in found}) == 1
    if mode == DYNAMIC:
        assert max(Counter(itertools.chain(*found)).values()) == 1


def test_static_shards_are_read_in_rounds_too(serve, consumers):
    service = serve(2, worker_addresses=["localhost", "localhost"])
    dataset = Dataset.range(21).with_options(FINITE)
    found = _read_to_end(consumers(service, dataset, 2, ShardingPolicy.DATA))
    assert found == [
        [0, 1, 4, 5, 8, 9, 12, 13, 16, 17],
        [2, 3, 6, 7, 10, 11, 14, 15, 18, 19],
    ]


def test_an_empty_dataset_ends_for_all(serve, consumers):
    dataset = Dataset.range(0).with_options(FINITE)
    assert _read_to_end(consumers(serve(2), dataset, 2)) == [[], []]


@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_each_pass_of_a_repeat_is_read_in_rounds(serve, mode):
    service = serve(2)
    datasets = [
        Dataset.range(12)
        .with_options(FINITE)
        .distribute(
            service.target,
            processing_mode=mode,
            job_name="job",
            consumer_index=index,
            num_consumers=2,
        )
        .repeat(3)
        for index in range(2)
    ]
    with contextlib.ExitStack() as stack:
        found = _read_to_end([stack.enter_context(x.iterator()) for x in datasets])
    assert len(found[0]) == len(found[1])
    if mode == OFF:
        assert Counter(itertools.chain(*found)) == dict.fromkeys(range(12), 6)


# ── consumers ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("closes", [True, False])
def test_a_consumer_that_restarts_rejoins_at_the_current_round(serve, consumers, limit, closes):
    service = serve(3)
    iterators = consumers(service, ENDLESS, 3, max_outstanding_requests=limit)
    rounds = _read(iterators, 20)
    if closes:
        iterators[1].close()
    [again] = consumers(service, ENDLESS, 3, indexes=[1], max_outstanding_requests=limit)
    old, iterators[1] = iterators[1], again
    rounds += _read(iterators, 20)
    assert _all_whole(rounds)
    assert rounds[20][0] > 0
    if not closes:
        with pytest.raises(UnavailableError, match="another consumer with consumer_index 1"):
            _read([old], 1000)


def test_all_consumers_may_close_and_open_again(serve, consumers):
    service = serve(2)
    first = consumers(service, ENDLESS, 3)
    rounds = _read(first, 10)
    for iterator in first:
        iterator.close()
    rounds += _read(consumers(service, ENDLESS, 3), 10)
    assert _all_whole(rounds)
    assert [elements[0] for elements in rounds] == [k // 2 * 3 for k in range(20)]


def test_others_read_on_when_a_consumer_closes(serve, consumers):
    iterators = consumers(serve(2), Dataset.range(4000).with_options(FINITE), 2)
    _read(iterators, 5)
    iterators[1].close()
    assert [len(x) for x in _read_to_end(iterators[:1])] == [4000 - 5]


def test_consumers_may_be_read_at_different_speeds(serve, consumers):
    iterators = consumers(serve(2), ENDLESS, 2)
    ahead = [next(iterators[0]) for _ in range(100)]
    assert [next(iterators[1]) for _ in range(100)] == [x + 1 for x in ahead]


def test_reading_goes_on_over_a_restart_of_the_dispatcher(serve, consumers, tmp_path):
    journal: Any = {"work_dir": str(tmp_path / "journal"), "fault_tolerant_mode": True}
    service = serve(2, **journal)
    iterators = consumers(service, ENDLESS, 3)
    rounds = _read(iterators, 10)
    service.add_worker()
    port = service.address[1]
    service.dispatcher.stop()
    service.dispatcher = service.enter_context(DispatchServer(port=port, **journal))

    def has_joined():
        rounds.extend(_read(iterators, 1))
        return sum(elements[0] == 0 for elements in rounds) == 3

    assert eventually(has_joined)
    assert _all_whole(rounds + _read(iterators, 10))


# ── checks ───────────────────────────────────────────────────────────────────────────────────────
def test_finite_data_is_refused_unless_asked_for(serve, consumers):
    iterators = consumers(serve(1), Dataset.range(100), 1)
    text = (
        "Round robin reads require that the input dataset has infinite cardinality, but the "
        "dataset has cardinality 100. Consider adding a `.repeat()`"
    )
    with pytest.raises(FailedPreconditionError, match=re.escape(text)):
        next(iterators[0])


def test_data_that_ends_unexpectedly_is_an_error_for_all(serve, consumers):
    dataset = Dataset.range(10).filter(lambda x: True)
    iterators = consumers(serve(1), dataset, 2)
    assert _read(iterators, 5) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    for iterator in iterators:
        with pytest.raises(FailedPreconditionError, match="Encountered end of sequence on a round"):
            next(iterator)


def test_local_workers_are_refused(serve):
    """As tf.data service, compat raises it at the read."""
    service = serve(1)
    words = "Coordinated reads require non-local workers"
    fields: dict[str, Any] = {"consumer_index": 0, "num_consumers": 2, "target_workers": "local"}
    with pytest.raises(InvalidArgumentError, match=words):
        ENDLESS.apply(distribute(OFF, service.target, "job", **fields))
    transformation = tf.data.experimental.service.distribute(OFF, service.target, "job", **fields)
    dataset = tf.data.Dataset.range(10).repeat().apply(transformation)
    with pytest.raises(InvalidArgumentError, match=words):
        next(iter(dataset))


def test_consumers_must_agree_on_their_number(serve, consumers):
    service = serve(1)
    next(consumers(service, ENDLESS, 3)[0])
    with pytest.raises(InvalidArgumentError, match="Existing number of consumers: <3>; got <2>"):
        next(consumers(service, ENDLESS, 2)[0])


def test_tags_of_workers_are_ignored(serve, consumers):
    service = serve(1)
    service.add_worker(worker_tags=["COLOCATED"])
    rounds = _read(consumers(service, ENDLESS, 2), 4)
    assert rounds == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_the_cardinality_is_infinite_or_unknown(serve):
    service = serve(1)
    finite = Dataset.range(10).with_options(FINITE)
    for dataset, expected in ((ENDLESS, INFINITE_CARDINALITY), (finite, UNKNOWN_CARDINALITY)):
        by_tree = distribute(OFF, service.target, "job", 0, 2)
        assert dataset.apply(by_tree).cardinality() == expected
        dataset_id = register_dataset(service.target, dataset)
        by_id = from_dataset_id(OFF, service.target, dataset_id, None, "job", 0, 2)
        assert by_id.cardinality() == expected


def test_it_works_by_tensorflows_names(serve):
    service = serve(2)
    dataset = tf.data.Dataset.range(10**9).repeat()
    datasets = [
        dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=tf.data.experimental.service.ShardingPolicy.OFF,
                service=service.target,
                job_name="job",
                consumer_index=index,
                num_consumers=2,
            )
        )
        for index in range(2)
    ]
    together = tf.data.Dataset.zip(tuple(datasets)).take(4)
    assert [tuple(map(int, pair)) for pair in together] == [(0, 1), (0, 1), (2, 3), (2, 3)]
