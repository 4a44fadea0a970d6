"""BEHAVIOUR.md, Cross-trainer cache: trainers of one job that read the same elements."""

import itertools
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest

from stoker import Dataset
from stoker.compat import tf
from stoker.errors import InvalidArgumentError
from stoker.service import CrossTrainerCache, distribute, from_dataset_id, register_dataset
from tests.serving import Service, eventually, outcomes, read, reading

OFF, DYNAMIC = "parallel_epochs", "distributed_epoch"
NUMBERS = Dataset.range(10**9).repeat()

SIZE = "cross_trainer_cache_size_bytes"


def _cached(service: Service, trainer: str, dataset: Dataset = NUMBERS, **fields) -> Dataset:
    """Return `dataset`, read by a trainer of the job "job"."""
    fields = {"processing_mode": OFF, "job_name": "job", **fields}
    cache = CrossTrainerCache(trainer)
    return dataset.distribute(service.target, cross_trainer_cache=cache, **fields)


# ── what trainers get ────────────────────────────────────────────────────────────────────────────
def test_trainers_read_the_same_elements(serve, transport):
    service = serve()
    for trainer in ("ann", "bob", "eve"):
        dataset = _cached(service, trainer, data_transfer_protocol=transport)
        assert read(dataset, 100) == list(range(100))


def test_trainers_may_read_a_registered_dataset(serve):
    target = serve().target
    for trainer in ("ann", "bob"):
        name = register_dataset(target, NUMBERS, dataset_id="numbers")
        cache = CrossTrainerCache(trainer)
        dataset = from_dataset_id(OFF, target, name, job_name="job", cross_trainer_cache=cache)
        assert read(dataset, 10) == list(range(10))


def test_many_trainers_read_in_step_from_a_small_cache(serve):
    service = serve(worker={SIZE: 4000})
    with ExitStack() as stack:
        datasets = [_cached(service, f"{k}", max_outstanding_requests=1) for k in range(20)]
        iterators = [stack.enter_context(dataset.iterator()) for dataset in datasets]
        for step in range(50):
            assert [next(iterator) for iterator in iterators] == [step] * 20


def test_a_trainer_that_comes_late_begins_where_the_cache_does(serve):
    service = serve(worker={SIZE: 500})
    assert read(_cached(service, "ann"), 200) == list(range(200))
    for trainer in map(str, range(5)):
        found = read(_cached(service, trainer), 200)
        assert found[0] > 0
        assert found == list(range(found[0], found[0] + 200))


def test_the_first_trainer_that_reads_skips_nothing(serve):
    """With TensorFlow's timing, one that is open and not read requests nothing."""
    library = tf.data.experimental.service
    target = serve(worker={SIZE: 500}).target

    def cached(trainer: str) -> Dataset:
        cache = library.CrossTrainerCache(trainer)
        return NUMBERS.apply(library.distribute(OFF, target, "job", cross_trainer_cache=cache))

    with cached("unread").iterator() as unread, cached("ann").iterator() as iterator:
        assert read(iterator, 200) == list(range(200))
        assert iterator.stats()["elements_skipped"] == 0
        assert read(unread, 1)[0] >= 198


def test_a_slow_trainer_skips_what_has_left_the_cache(serve):
    service = serve(worker={SIZE: 2000})
    slow = _cached(service, "slow", max_outstanding_requests=1).iterator()
    fast = _cached(service, "fast", max_outstanding_requests=1).iterator()
    with slow, fast:
        assert (next(slow), next(slow)) == (0, 1)
        assert read(fast, 1000) == list(range(1000))
        found = read(slow, 5)
        found = found[found.index(next(x for x in found if x > 2)) :]  # 2 had been sent
        assert found[0] > 900
        assert found == list(range(found[0], found[0] + len(found)))
        counts = slow.stats()
        assert counts["elements_skipped"] in (found[0] - 2, found[0] - 3)
        assert fast.stats()["elements_skipped"] == 0


def test_trainers_get_the_same_order_of_an_unseeded_shuffle(serve):
    service = serve()
    shuffled = NUMBERS.shuffle(100)
    first = read(_cached(service, "ann", shuffled), 200)
    assert first == read(_cached(service, "bob", shuffled), 200) != list(range(200))


def test_clients_of_one_trainer_share_its_elements(serve):
    service = serve()
    with ExitStack() as stack:
        mine = [stack.enter_context(_cached(service, "ann").iterator()) for _ in range(3)]
        found = [next(iterator) for _ in range(100) for iterator in mine]
        assert max(Counter(found).values()) == 1
        assert read(_cached(service, "bob"), 10) == list(range(10))


def test_a_trainer_goes_on_where_it_stopped(serve):
    service = serve()
    found = [x for _ in range(3) for x in read(_cached(service, "ann"), 10)]
    assert found == list(range(30))
    assert read(_cached(service, "bob"), 30) == found


def test_trainers_of_different_jobs_share_nothing(serve):
    service = serve()
    for job in ("first", "second"):
        assert read(_cached(service, "ann", job_name=job), 10) == list(range(10))


def test_trainers_share_the_splits_of_all_workers(serve):
    """Each of two workers has begun one of the large splits."""
    service = serve(2)

    def read_both(trainer: str) -> list[list[int]]:
        by_split: dict[int, list[int]] = {}
        with _cached(service, trainer, processing_mode=DYNAMIC).iterator() as iterator:
            while len(by_split) < 2 or min(map(len, by_split.values())) < 100:
                number = read(iterator, 1)[0]
                by_split.setdefault(number // 100_000, []).append(number)
        return [by_split[split][:100] for split in sorted(by_split)]

    assert read_both("ann") == read_both("bob")


def test_trainers_may_differ_in_compression(serve):
    service = serve()
    for trainer, compression in (("ann", None), ("bob", "ZSTD"), ("eve", "AUTO")):
        assert read(_cached(service, trainer, compression=compression), 10) == list(range(10))


def test_local_trainers_share_a_cache(serve):
    service = serve()
    for trainer in ("ann", "bob"):
        assert read(_cached(service, trainer, target_workers="LOCAL"), 10) == list(range(10))


def _nested(k: int) -> dict:
    return {
        "large": np.full((200, 200), k, np.int32),
        "list": [np.full(3, k), np.full((), k)],
        "objects": np.array(["a", b"b", None], dtype=object),
    }


@pytest.mark.parametrize("batched", [False, True])
def test_a_trainer_that_writes_changes_nothing_for_others(serve, transport, batched):
    service = serve()
    dataset = Dataset.range(10**6).repeat().map(_nested)
    dataset = dataset.batch(2) if batched else dataset

    def take_and_spoil(trainer: str) -> list:
        with _cached(
            service, trainer, dataset, data_transfer_protocol=transport
        ).iterator() as iterator:
            seen = []
            for element in itertools.islice(iterator, 8):
                arrays = [element["large"], *element["list"], element["objects"]]
                seen.append([x.tolist() for x in arrays])
                for x in arrays:
                    x[...] = None if x.dtype == object else -1
                element["list"].clear()
            return seen

    first = take_and_spoil("ann")
    assert first[1][0][0][0] in (1, [2] * 200)
    assert take_and_spoil("bob") == first
    assert take_and_spoil("eve") == first


# ── statistics ───────────────────────────────────────────────────────────────────────────────────
def test_hits_and_misses_are_counted(serve):
    service = serve()
    ann = _cached(service, "ann", max_outstanding_requests=1).iterator()
    bob = _cached(service, "bob", max_outstanding_requests=1)
    with ann:
        read(ann, 10)
        with bob.iterator() as second:
            read(second, 8)
            mine, others = ann.stats(), second.stats()
    # The next one may have been sent.
    assert (mine["cache_hits"], mine["cache_misses"] - 10) in [(0, 0), (0, 1)]
    assert (others["cache_hits"] - 8, others["cache_misses"]) in [(0, 0), (1, 0)]


def test_without_a_cache_there_are_no_such_counts(serve):
    with NUMBERS.distribute(serve().target).iterator() as iterator:
        next(iterator)
        assert "cache_hits" not in iterator.stats()


# ── errors ───────────────────────────────────────────────────────────────────────────────────────
def test_a_cache_requires_a_named_job(serve):
    with pytest.raises(
        InvalidArgumentError,
        match=r"Cross-trainer caching requires named jobs. Got empty `job_name`\.",
    ):
        _cached(serve(0), "ann", job_name=None)


@pytest.mark.parametrize("count", [0, 10])
def test_a_cache_requires_an_infinite_dataset(serve, count):
    service = serve()
    finite = Dataset.range(count).map(abs)
    text = "Cross-trainer caching requires the input dataset to be infinite. Got input with "
    with pytest.raises(InvalidArgumentError, match=text + f"cardinality {count}"):
        _cached(service, "ann", finite)
    name = register_dataset(service.target, finite)
    cache = CrossTrainerCache("ann")
    with pytest.raises(InvalidArgumentError, match=text + f"cardinality {count}"):
        read(from_dataset_id(OFF, service.target, name, job_name="a", cross_trainer_cache=cache))


def test_the_end_of_a_dataset_of_unknown_size_is_an_error(serve):
    service = serve()
    finite = Dataset.range(10).filter(lambda x: x < 3)
    for trainer in ("ann", "bob"):
        with _cached(service, trainer, finite).iterator() as iterator:
            *found, error = outcomes(iterator)
        assert found == [0, 1, 2]
        assert isinstance(error, InvalidArgumentError)
        assert "infinite. However, it reached the end of sequence" in str(error)


def test_a_cache_has_one_repetition(serve):
    dataset = _cached(serve(), "ann")
    assert read(dataset, 10) == list(range(10))
    with pytest.raises(
        InvalidArgumentError,
        match="requires infinite datasets and disallows multiple repetitions of the same dataset",
    ):
        read(dataset, 10)


def test_a_cache_does_not_support_coordinated_reads(serve):
    with pytest.raises(
        InvalidArgumentError,
        match="Cross-trainer caching does not support coordinated reads",
    ):
        _cached(serve(0), "ann", num_consumers=1, consumer_index=0)


def test_clients_of_one_job_agree_on_the_cache(serve):
    service = serve()
    read(_cached(service, "ann"), 1)
    with pytest.raises(
        InvalidArgumentError, match="Existing cross-trainer cache: <enabled>; got <disabled>"
    ):
        read(NUMBERS.distribute(service.target, processing_mode=OFF, job_name="job"), 1)
    read(NUMBERS.distribute(service.target, job_name="other"), 1)
    with pytest.raises(
        InvalidArgumentError, match="Existing cross-trainer cache: <disabled>; got <enabled>"
    ):
        read(_cached(service, "ann", job_name="other", processing_mode=DYNAMIC), 1)


def test_the_option_is_a_cross_trainer_cache(serve):
    text = "`cross_trainer_cache` must be a CrossTrainerCache or None, got 'ann'"
    with pytest.raises(TypeError, match=text):
        distribute(OFF, serve(0).target, "job", cross_trainer_cache="ann")  # type: ignore[arg-type]


def test_an_element_larger_than_the_cache_is_an_error(serve):
    service = serve(worker={SIZE: 1000})
    dataset = Dataset.range(3).map(lambda k: np.zeros(1000 if k == 1 else 10, np.int8)).repeat()
    with _cached(service, "ann", dataset).iterator() as iterator:
        assert len(next(iterator)) == 10
        with pytest.raises(
            InvalidArgumentError,
            match=r"element size is larger than cache size in bytes. Got element size: 1032 and "
            "cache size: 1000.",
        ):
            next(iterator)
        assert len(next(iterator)) == 10


# ── faults ───────────────────────────────────────────────────────────────────────────────────────
def test_a_cache_is_lost_with_its_worker(serve):
    service = serve()
    with _cached(service, "ann").iterator() as ann, _cached(service, "bob").iterator() as bob:
        assert read(ann, 100) == read(bob, 100) == list(range(100))
        service.workers[0].stop()
        service.add_worker()
        for iterator in (ann, bob):
            while next(iterator) != 0:  # elements that had arrived come first
                pass
        assert read(ann, 100) == read(bob, 100) == list(range(1, 101))


def test_a_cache_is_kept_over_a_restart_of_the_dispatcher(serve, journal):
    service = serve(1, **journal)
    with _cached(service, "ann").iterator() as ann:
        assert read(ann, 100) == list(range(100))
        service.restart_dispatcher(**journal)
        assert read(ann, 100) == list(range(100, 200))
        assert read(_cached(service, "bob"), 200) == list(range(200))
        assert read(_cached(service, "ann"), 1)[0] >= 200


def test_a_stopping_worker_delivers_to_all_trainers(serve):
    service = serve(worker={"shutdown_quiet_period_ms": 30_000})
    dataset = Dataset.range(10**9).repeat().map(lambda k: np.full(10_000, k))
    ann, bob = (_cached(service, trainer, dataset).iterator() for trainer in ("ann", "bob"))
    with reading(ann) as found, reading(bob) as other:
        service.workers.pop().stop()
        assert eventually(lambda: service.dispatcher.num_workers() == 0)
        assert eventually(lambda: len(found) == len(other))
        numbers = [int(x[0]) for x in found]
        assert numbers == [int(x[0]) for x in other] == list(range(len(found)))
