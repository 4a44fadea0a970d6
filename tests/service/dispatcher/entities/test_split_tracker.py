"""Begun splits, and the cutting of index sources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.dataset.tree.splits import ENDLESS
from stoker.service.dispatcher.entities.split_tracker import (
    ENDLESS_SPLIT,
    MAX_INDEX_SPLITS,
    REMEMBERED,
    SplitTracker,
    split_range,
    split_total,
)


def test_tracker_is_read_when_its_last_task_leaves():
    tracker = SplitTracker(2)
    tracker.begin([(0, 1)], 1)
    tracker.begin([(1, 2)], 2)
    tracker.leave(1)
    assert not tracker.is_read
    tracker.leave(2)
    assert tracker.is_read
    assert tracker.begun_counts == {1: 1, 2: 1}


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=40), st.randoms())
def test_a_task_has_begun_the_splits_that_it_announced(batches, rng):
    starts = list(range(0, 5 * len(batches), 5))
    rng.shuffle(starts)
    tracker = SplitTracker(1000)
    expected: dict[int, set[int]] = {1: set(), 2: set(), 3: set()}
    for start, (task, size) in zip(starts, batches, strict=True):
        tracker.begin([(start, start + size)], task)
        expected[task] |= set(range(start, start + size))
    for task, splits in expected.items():
        assert {x for x in range(-1, 1001) if tracker.has_begun(task, x)} == splits
        assert tracker.begun_counts.get(task, 0) == len(splits)


@pytest.mark.parametrize(("size", "gap"), [(1, 0), (1, 7), (2, 1), (3, 0)])
def test_the_last_splits_of_a_task_are_remembered(size: int, gap: int):
    tracker = SplitTracker(10**9)
    splits: list[int] = []
    for k in range(2 * REMEMBERED // size):
        start = k * (size + gap)
        tracker.begin([(start, start + size)], 1)
        splits += range(start, start + size)
    assert all(tracker.has_begun(1, split) for split in splits[-REMEMBERED::97])
    assert len(tracker.recent[1]) <= REMEMBERED


@given(st.integers(0, 3 * MAX_INDEX_SPLITS))
def test_index_splits_cover_a_source_evenly(count: int):
    total = split_total(count, 3)
    ranges = [split_range(split, total, count) for split in range(total)]
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])][:total]
    assert not ranges or ranges[-1][1] == count
    sizes = {stop - start for start, stop in ranges}
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_infinite_source_has_splits_of_one_size():
    total = split_total(ENDLESS, 3)
    for split in (0, 1, 1000, 10**12, total - 1):
        expected = (split * ENDLESS_SPLIT, (split + 1) * ENDLESS_SPLIT)
        assert split_range(split, total, ENDLESS) == expected
    assert split_total(ENDLESS - 1, 3) == MAX_INDEX_SPLITS


def test_every_worker_of_a_large_cluster_gets_splits():
    assert split_total(10**9, 10_000) == 80_000
    assert split_total(100, 10_000) == 100


def test_tracker_of_an_infinite_source_stays_small():
    tracker = SplitTracker(split_total(ENDLESS, 3))
    for k in range(100):
        tracker.begin([(k * REMEMBERED, (k + 1) * REMEMBERED)], 1)
    assert tracker.begun.ranges == [(0, 100 * REMEMBERED)]
    assert len(tracker.recent[1]) <= 100
    assert tracker.begun_counts[1] == 100 * REMEMBERED
