"""BEHAVIOUR.md, Sharding: several sources under DYNAMIC, and infinite sources."""

import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset
from stoker.errors import FailedPreconditionError, UnimplementedError
from stoker.service import distribute
from tests.serving import eventually, read

DYNAMIC = "distributed_epoch"
ADDRESS = "localhost:5050"


def zipped(*datasets: Dataset) -> Dataset:
    return Dataset.zip(*datasets)


# ── zip ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("workers", [1, 2])
def test_zip_stays_aligned_and_ends_with_the_shorter_input(serve, workers):
    dataset = zipped(Dataset.range(1000), Dataset.range(5000, 5700))
    found = read(dataset.distribute(serve(workers).target, DYNAMIC))
    assert sorted(found) == [(i, 5000 + i) for i in range(700)]


def test_zip_branches_may_run_at_different_speeds(serve):
    slow = Dataset.range(500).map(lambda x: x * x, num_parallel_calls=2).prefetch(3)
    dataset = zipped(slow, Dataset.range(500).enumerate().map(lambda _, x: x))
    assert sorted(read(dataset.distribute(serve(2).target, DYNAMIC))) == [
        (i * i, i) for i in range(500)
    ]


@pytest.mark.parametrize("drop", [False, True])
def test_batches_in_a_zip_branch_equal_local_ones(serve, drop):
    def make() -> Dataset:
        labels = Dataset.range(1003).batch(10, drop_remainder=drop)
        return zipped(labels, Dataset.range(200), Dataset.range(450).map(str, 2).batch(2).batch(2))

    def plain(elements: Any) -> list[Any]:
        return sorted((b.tolist(), i, c.tolist()) for b, i, c in elements)

    assert plain(read(make().distribute(serve(2).target, DYNAMIC))) == plain(make())


def test_partial_batch_is_last_on_any_worker(serve):
    service = serve(2)
    dataset = zipped(Dataset.range(47).batch(5), Dataset.range(10)).repeat(20)
    found = read(dataset.distribute(service.target, DYNAMIC))
    assert Counter((tuple(batch.tolist()), i) for batch, i in found) == {
        (tuple(range(5 * i, min(5 * i + 5, 47))), i): 20 for i in range(10)
    }


def test_repeated_zip_stays_aligned_in_each_epoch(serve):
    dataset = zipped(Dataset.range(100), Dataset.range(100).map(lambda x: -x)).repeat(5)
    expected = dict.fromkeys([(i, -i) for i in range(100)], 5)
    assert Counter(read(dataset.distribute(serve(3).target, DYNAMIC))) == expected


def test_zips_may_nest_and_share_sources(serve):
    source = Dataset.range(300)
    dataset = zipped(zipped(source, source.map(str)).batch(3), source, source.batch(2))
    found = sorted(
        (a.tolist(), b.tolist(), c, d.tolist())
        for (a, b), c, d in read(dataset.distribute(serve(2).target, DYNAMIC))
    )
    assert found == [
        ([3 * i, 3 * i + 1, 3 * i + 2], [str(3 * i + k) for k in range(3)], i, [2 * i, 2 * i + 1])
        for i in range(100)
    ]


def test_shuffled_branch_yields_each_element_once(serve):
    dataset = zipped(Dataset.range(500).shuffle(50), Dataset.range(500))
    found = read(dataset.distribute(serve(2).target, DYNAMIC))
    assert sorted(a for a, _ in found) == sorted(b for _, b in found) == list(range(500))


def test_cached_branch_stays_aligned_in_later_epochs(serve):
    cached = Dataset.range(200).map(lambda x: x).cache()
    dataset = zipped(cached, Dataset.range(200)).repeat(3)
    expected = dict.fromkeys([(i, i) for i in range(200)], 3)
    assert Counter(read(dataset.distribute(serve(2).target, DYNAMIC))) == expected


def test_error_in_a_branch_replaces_only_its_position(serve):
    def flaky(x: int) -> int:
        if x % 50 == 7:
            raise ValueError(f"no {x}")
        return x

    dataset = zipped(Dataset.range(200).map(flaky), Dataset.range(200))
    found, errors = [], 0
    with dataset.distribute(serve(2).target, DYNAMIC).iterator() as iterator:
        while True:
            try:
                found.append(next(iterator))
            except StopIteration:
                break
            except stoker.errors.UserFunctionError:
                errors += 1
    assert errors == 4
    assert sorted(found) == [(i, i) for i in range(200) if i % 50 != 7]


def test_parallel_epochs_zip_any_branches(serve):
    dataset = zipped(Dataset.range(50).filter(lambda x: x % 2), Dataset.range(20))
    found = read(dataset.apply(distribute("parallel_epochs", serve(2).target)))
    assert Counter(found) == dict.fromkeys([(2 * i + 1, i) for i in range(20)], 2)


@pytest.mark.parametrize(
    ("branch", "words"),
    [
        (Dataset.range(9).filter(lambda x: x > 1), "apply `filter` after `zip`"),
        (Dataset.range(9).repeat(), "apply `repeat` after `zip`"),
        (Dataset.range(9).take(3), "apply `take` after `zip`"),
        (Dataset.list_files("*.txt"), "how many elements `list_files` .* has is known only"),
        (Dataset.from_generator(list), "its input `from_generator` .* cannot be"),
    ],
)
def test_unalignable_zip_is_refused_naming_the_node(branch, words):
    with pytest.raises(UnimplementedError, match=f"`zip` .*cannot be split: .*{words}.*parallel_e"):
        zipped(Dataset.range(9), branch).distribute(ADDRESS, DYNAMIC)


def test_workers_stopped_inside_a_zip_leave_no_threads(serve):
    service = serve(2)
    dataset = zipped(Dataset.counter().prefetch(2), Dataset.counter().map(str).prefetch(2))
    with dataset.distribute(service.target, DYNAMIC).iterator() as iterator:
        assert len(read(iterator, 100)) == 100
        assert eventually(lambda: any("stoker-reader" in x.name for x in threading.enumerate()))
    service.close()
    assert eventually(lambda: not any("stoker-reader" in x.name for x in threading.enumerate()))


# ── each source split separately ─────────────────────────────────────────────────────────────────
def test_concatenated_sources_are_split_separately(serve, tmp_path):
    for i in range(20):
        (tmp_path / f"{i}.txt").write_text(str(i))
    files = Dataset.list_files(str(tmp_path / "*.txt")).map(lambda path: int(Path(path).stem))
    ranges = Dataset.range(100, 600)
    dataset = files.concatenate(ranges).concatenate(ranges)
    expected = Counter(range(20)) + Counter(dict.fromkeys(range(100, 600), 2))
    assert Counter(read(dataset.distribute(serve(2).target, DYNAMIC))) == expected


def test_sampled_sources_are_split_separately(serve):
    parts = [Dataset.range(300), Dataset.range(1000, 1200).map(lambda x: x)]
    dataset = Dataset.sample_from_datasets(parts, weights=[0.9, 0.1])
    found = read(dataset.distribute(serve(2).target, DYNAMIC))
    assert sorted(found) == [*range(300), *range(1000, 1200)]


def test_chosen_sources_are_split_but_not_the_choices(serve):
    parts = [Dataset.range(300), Dataset.range(1000, 1200)]
    dataset = Dataset.choose_from_datasets(
        parts, Dataset.range(2).repeat(), stop_on_empty_dataset=False
    )
    found = read(dataset.distribute(serve(2).target, DYNAMIC))
    assert sorted(found) == [*range(300), *range(1000, 1200)]


def test_choices_may_come_from_an_unsplittable_source(serve):
    choices = Dataset.from_generator(lambda: [0, 1] * 1000)
    parts = [Dataset.range(300), Dataset.range(1000, 1200)]
    dataset = Dataset.choose_from_datasets(parts, choices, stop_on_empty_dataset=False)
    found = read(dataset.distribute(serve(2).target, DYNAMIC))
    assert sorted(found) == [*range(300), *range(1000, 1200)]


def test_resampled_elements_are_yielded_at_most_once(serve):
    dataset = Dataset.range(2000).rejection_resample(lambda x: x % 4 // 3, [0.5, 0.5])
    found = read(dataset.distribute(serve(2).target, DYNAMIC))
    counts = Counter(x for _, x in found)
    assert set(counts.values()) == {1}
    assert 0.3 < np.mean([kind for kind, _ in found]) < 0.7


# ── infinite sources ─────────────────────────────────────────────────────────────────────────────
def test_counter_is_assigned_in_small_splits(serve):
    dataset = Dataset.counter().map(lambda x: x).distribute(serve(2).target, DYNAMIC)
    assert dataset.cardinality() == stoker.INFINITE_CARDINALITY
    found = read(dataset.take(20_000))
    assert len(set(found)) == 20_000
    # No worker is further ahead than its assigned splits.
    assert max(found) < 1_000_000


def test_random_numbers_depend_only_on_their_position(serve):
    dataset = Dataset.zip(Dataset.counter(), Dataset.random(seed=5))
    whole = dict(dataset.take(200_000))
    found = read(dataset.distribute(serve(2).target, DYNAMIC).take(10_000))
    assert len({position for position, _ in found}) == 10_000
    assert all(value == whole[position] for position, value in found if position in whole)


def test_counter_numbers_the_elements_zipped_with_it(serve):
    dataset = Dataset.zip(Dataset.counter(start=7), Dataset.from_tensor_slices(["a", "b", "c"]))
    found = read(dataset.distribute(serve(2).target, DYNAMIC))
    assert sorted(found) == [(7, "a"), (8, "b"), (9, "c")]


def test_parallel_epochs_count_on_each_worker(serve):
    dataset = Dataset.counter().apply(distribute("parallel_epochs", serve(2).target))
    counts = Counter(read(dataset.take(5000)))
    assert max(counts.values()) <= 2


# ── shard ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_shard_hint_without_hint_policy_is_refused(serve, mode):
    dataset = Dataset.range(9).shard(stoker.SHARD_HINT, stoker.SHARD_HINT)
    words = (
        "tf.data service with `tf.data.experimental.service.ShardingPolicy.HINT` processing mode."
    )
    with pytest.raises(FailedPreconditionError, match=re.escape(words)):
        read(dataset.apply(distribute(mode, serve(1).target)))


def test_parallel_epochs_read_the_same_shard(serve):
    dataset = Dataset.range(100).shard(7, 3)
    found = read(dataset.apply(distribute("parallel_epochs", serve(2).target)))
    assert Counter(found) == dict.fromkeys(range(3, 100, 7), 2)
