"""BEHAVIOUR.md, Sharding: DYNAMIC with datasets inside functions, endless sources and files."""

from collections import Counter

import numpy as np
import pytest

import stoker
from stoker import Dataset, TFRecordWriter
from tests.serving import eventually, read

DYNAMIC = "distributed_epoch"


# ── datasets inside functions ────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("threads", [None, stoker.AUTOTUNE])
def test_inner_datasets_are_not_split(serve, threads):
    dataset = Dataset.from_tensor_slices([1, 5, 0]).interleave(
        lambda x: Dataset.from_tensor_slices(["a", "b"]).repeat(3).map(lambda y: (int(x), y)),
        num_parallel_calls=threads,
    )
    expected = dict.fromkeys([(x, y) for x in (0, 1, 5) for y in "ab"], 3)
    assert Counter(read(dataset.distribute(serve(3).target, DYNAMIC))) == expected


def test_a_dataset_made_for_a_window_is_not_split(serve):
    dataset = Dataset.range(100).group_by_window(
        lambda x: x % 2,
        lambda _, window: Dataset.zip(window, Dataset.range(100)),
        window_size=100,
    )
    found = read(dataset.distribute(serve(2).target, DYNAMIC))
    assert sorted(x for x, _ in found) == list(range(100))
    # Each of the two workers has a window of each key, numbered from 0.
    numbers = Counter(number for _, number in found)
    assert set(numbers) == set(range(len(numbers)))
    assert max(numbers.values()) <= 4


# ── repeat ───────────────────────────────────────────────────────────────────────────────────────
def test_an_endless_repeat_yields_all_elements_evenly(serve):
    dataset = Dataset.range(20).repeat().distribute(serve(2).target, DYNAMIC)
    counts = Counter(read(dataset.take(1000)))
    assert set(counts) == set(range(20))
    assert min(counts.values()) > 25


def test_an_endless_repeat_goes_on_after_workers_stop(serve):
    """With one element, most workers get nothing of an epoch."""
    service = serve(5)
    with Dataset.range(1).repeat().distribute(service.target, DYNAMIC).iterator() as iterator:
        assert read(iterator, 20) == [0] * 20
        assert eventually(lambda: all(worker.num_tasks() for worker in service.workers))
        for worker in service.workers[:4]:
            worker.stop()
        assert read(iterator, 500) == [0] * 500


@pytest.mark.parametrize("workers", [1, 3])
def test_the_shorter_input_ends_a_zip_in_each_epoch(serve, workers):
    dataset = Dataset.zip(Dataset.range(200), Dataset.range(1000)).repeat(3)
    found = read(dataset.distribute(serve(workers).target, DYNAMIC))
    assert Counter(found) == dict.fromkeys([(i, i) for i in range(200)], 3)


# ── several sources, and what each worker counts ─────────────────────────────────────────────────
def test_endless_sources_are_sampled_by_weight(serve):
    sources = [Dataset.from_tensors(i).repeat() for i in range(3)]
    dataset = Dataset.sample_from_datasets(sources, [0.6, 0.3, 0.1]).distribute(
        serve(3).target, DYNAMIC
    )
    counts = Counter(int(x) for x in read(dataset.take(200)))
    assert counts[0] > counts[1] > counts[2] > 0


@pytest.mark.parametrize("workers", [1, 3])
def test_every_worker_reads_all_choices(serve, workers):
    words = [Dataset.from_tensors(word).repeat() for word in ("foo", "bar", "baz")]
    choices = [0, 2, 2, 1, 0, 1, 2]
    dataset = Dataset.choose_from_datasets(words, Dataset.from_tensor_slices(choices))
    found = read(dataset.distribute(serve(workers).target, DYNAMIC))
    assert Counter(found) == {"foo": 2 * workers, "bar": 2 * workers, "baz": 3 * workers}
    if workers == 1:
        assert found == [("foo", "bar", "baz")[i] for i in choices]


def test_every_worker_enumerates_from_zero(serve):
    dataset = Dataset.from_tensor_slices(["a", "b", "c"]).repeat().enumerate()
    counts: Counter[int] = Counter()
    with dataset.distribute(serve(3).target, DYNAMIC).iterator() as iterator:
        while counts[10] < 3:
            [(number, _)] = read(iterator, 1)
            counts[number] += 1
    assert [counts[number] for number in range(10)] == [3] * 10


# ── files ────────────────────────────────────────────────────────────────────────────────────────
def test_an_array_of_file_names_is_split(serve, tmp_path):
    names = [str(tmp_path / f"{file}.tfrecord") for file in range(5)]
    for file, name in enumerate(names):
        with TFRecordWriter(name) as writer:
            for record in range(5):
                writer.write(b"Record %d of file %d" % (record, file))
    shuffled = np.random.default_rng(0).permutation(names)
    dataset = Dataset.from_tensor_slices(shuffled).interleave(Dataset.tfrecords)
    found = read(dataset.distribute(serve(3).target, DYNAMIC))
    expected = [
        b"Record %d of file %d" % (record, file) for file in range(5) for record in range(5)
    ]
    assert sorted(found) == sorted(expected)
