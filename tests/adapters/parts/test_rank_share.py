"""Ranks get equal numbers of elements, and together each element at most once."""

import numpy as np
import pytest

import stoker
from stoker import Dataset, Options
from stoker.adapters.rank_share import part_of, share_of, shuffled
from stoker.adapters.ranks import Rank, given_rank, rank_of_environment
from stoker.adapters.reading import read_as
from stoker.errors import InvalidArgumentError


def shares(dataset, world_size):
    return [list(share_of(dataset, rank, world_size)) for rank in range(world_size)]


@pytest.mark.parametrize("count", range(8))
def test_counted_dataset_is_cut_into_equal_shares(count):
    found = shares(Dataset.range(count), 3)
    assert found == [list(range(rank, count // 3 * 3, 3)) for rank in range(3)]


@pytest.mark.parametrize("count", range(8))
def test_dataset_of_unknown_length_is_cut_the_same(count):
    unknown = Dataset.range(count).filter(lambda _: True)
    assert shares(unknown, 3) == shares(Dataset.range(count), 3)


def test_endless_dataset_is_cut_without_end():
    assert [share[:2] for share in shares(Dataset.range(3).repeat().take(9), 2)] == [[0, 2], [1, 0]]
    assert list(share_of(Dataset.counter(), 1, 2).take(3)) == [1, 3, 5]


def test_share_has_its_length():
    assert len(share_of(Dataset.range(7).map(abs).batch(2), 0, 3)) == 1
    assert share_of(Dataset.counter(), 0, 3).cardinality() == Dataset.counter().cardinality()


def test_rank_does_not_compute_the_elements_of_others():
    called = []

    def note(i):
        called.append(i)
        return i

    dataset = Dataset.range(8).map(note).batch(2)
    assert [batch.tolist() for batch in share_of(dataset, 1, 2)] == [[1, 3], [5, 7]]
    assert called == [1, 3, 5, 7]


def test_error_occupies_its_position_in_the_share():
    broken = Dataset.range(6).filter(lambda i: 1 // (i - 3) <= 1)
    iterator = iter(share_of(broken, 1, 2))
    assert next(iterator) == 1
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    assert next(iterator) == 5


def test_skipped_shares_continue_at_the_same_element():
    unknown = share_of(Dataset.range(20).filter(lambda _: True), 1, 3)
    assert list(unknown.skip(4)) == list(unknown)[4:]


def test_state_of_one_rank_is_the_state_of_all():
    dataset = Dataset.range(40).shuffle(40).with_options(Options(seed=1))
    one, other = (share_of(dataset, rank, 2) for rank in range(2))
    iterator, expected = iter(one), iter(other)
    for _ in range(5):
        next(iterator), next(expected)
    assert list(other.iterator(state=iterator.state_dict())) == list(expected)


def test_parts_keep_batches_and_add_up_to_the_dataset():
    dataset = Dataset.range(10).batch(3)
    parts = [[b.tolist() for b in part_of(dataset, index, 2)] for index in range(2)]
    assert parts == [[[0, 1, 2], [6, 7, 8]], [[3, 4, 5], [9]]]


def test_ranks_without_a_seed_shuffle_alike():
    found = [list(read_as(Dataset.range(20).shuffle(20), Rank(i, 2), {})) for i in range(2)]
    assert sorted(found[0] + found[1]) == list(range(20))


def test_child_processes_of_a_rank_share_its_part():
    found = [
        list(read_as(Dataset.range(11), Rank(rank, 2), {}, process=process, processes=2))
        for rank in range(2)
        for process in range(2)
    ]
    assert found == [[0, 4, 8], [2, 6], [1, 5, 9], [3, 7]]


@pytest.mark.parametrize(
    ("world_size", "processes", "batched"),
    [(2, 1, False), (1, 2, False), (2, 2, False), (2, 1, True)],
)
def test_each_part_is_cached(world_size, processes, batched):
    called = []

    def note(i):
        called.append(i)
        return i

    dataset = Dataset.range(8).map(note).cache()
    dataset = dataset.batch(1) if batched else dataset
    part = read_as(dataset, Rank(0, world_size), {}, processes=processes)
    for _ in range(3):
        assert [np.asarray(x).item() for x in part] == list(range(0, 8, world_size * processes))
    assert called == list(range(0, 8, world_size * processes))


def test_shuffle_stays_above_a_cache():
    dataset = shuffled(Dataset.range(50).cache())
    first, second = list(dataset), list(dataset)
    assert sorted(first) == sorted(second)
    assert first != second


@pytest.mark.parametrize("unknown", [False, True], ids=["counted", "unknown"])
def test_parts_draw_the_random_numbers_of_the_whole(unknown):
    def augmented(x):
        return x, int(stoker.random.generator().integers(1 << 30))

    source = Dataset.range(12).filter(lambda _: True) if unknown else Dataset.range(12)
    whole = (
        source.map(augmented).map(lambda *x: (*x, augmented(0)[1])).with_options(Options(seed=1))
    )
    parts = [
        read_as(whole, Rank(rank, 2), {}, process=process, processes=3)
        for rank in range(2)
        for process in range(3)
    ]
    for epoch in range(2):
        read = [element for part in parts for element in part.iterator(epoch=epoch)]
        assert sorted(read) == list(whole.iterator(epoch=epoch))


def test_ranks_draw_different_numbers_for_their_batches():
    batches = Dataset.range(8).batch(2).map(lambda _: stoker.random.generator().integers(1 << 30))
    drawn = [x for rank in range(2) for x in read_as(batches, Rank(rank, 2), {})]
    assert len(set(drawn)) == 4


def test_shuffle_goes_below_maps_and_batches():
    dataset = Dataset.from_tensor_slices(np.arange(100)).map(int).batch(10)
    kinds = shuffled(dataset).with_options(Options(seed=3))
    first = next(iter(kinds)).tolist()
    assert sorted(first) != list(range(min(first), min(first) + 10))
    assert sorted(int(x) for batch in kinds for x in batch) == list(range(100))


def test_rank_is_that_of_the_environment(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert rank_of_environment() == Rank(0, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert rank_of_environment() == Rank(1, 4)
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(InvalidArgumentError, match="RANK"):
        rank_of_environment()


@pytest.mark.parametrize("given", [(1, None), (None, 2), (2, 2), (-1, 2), ("0", 2)])
def test_incomplete_or_impossible_ranks_are_refused(given):
    with pytest.raises(InvalidArgumentError, match=r"`rank`|`world_size`"):
        given_rank(*given)
