"""States of splits: each is begun once, none is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.dataset.tree.splits import ENDLESS
from stoker.service.dispatcher.split_tracker import (
    ENDLESS_SPLIT,
    MAX_BATCH,
    MAX_INDEX_SPLITS,
    REMEMBERED,
    SplitTracker,
    split_range,
    split_total,
)


@given(total=st.integers(0, 60), data=st.data())
def test_every_split_is_begun_once_for_any_task_behavior(total: int, data: st.DataObject):
    tracker = SplitTracker(total)
    begun: list[int] = []
    for _ in range(data.draw(st.integers(0, 40))):
        task = data.draw(st.integers(1, 3))
        action = data.draw(st.sampled_from(["assign", "begin", "present", "give_back", "leave"]))
        mine = [split for split, holder in tracker.assigned.items() if holder == task]
        if action == "assign":
            tracker.assign(tracker.choose(data.draw(st.integers(1, 10)), 2), task)
        elif action == "begin" and mine:
            some = data.draw(st.lists(st.sampled_from(mine), unique=True))
            tracker.begin(some)
            begun += some
        elif action == "present" and total:
            split = data.draw(st.integers(0, total - 1))
            if tracker.is_available(split):
                tracker.assign([split], task)
        elif action == "give_back":
            tracker.give_back(task)
        elif action == "leave":
            tracker.leave(task)
        assert tracker.all_begun == (len(begun) == total)
    for task in (1, 2, 3):
        tracker.leave(task)
    while chosen := tracker.choose(MAX_BATCH, 1):
        tracker.assign(chosen, 4)
        tracker.begin(chosen)
        begun += chosen
    assert sorted(begun) == list(range(total))
    assert tracker.all_begun
    assert sum(tracker.begun_by(task) for task in (1, 2, 3, 4)) == total


def test_batches_shrink_toward_the_end():
    tracker = SplitTracker(1000)
    sizes = []
    while chosen := tracker.choose(100, 2):
        tracker.assign(chosen, 1)
        sizes.append(len(chosen))
    assert sizes[0] == 100
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1


def test_batches_do_not_shrink_below_least():
    tracker = SplitTracker(100)
    assert len(tracker.choose(50, 2)) == 12
    assert len(tracker.choose(50, 2, least=20)) == 20
    assert len(tracker.choose(10, 2, least=20)) == 10
    assert len(tracker.choose(500, 2, least=200)) == 100


def test_returned_splits_are_assigned_first_in_order():
    tracker = SplitTracker(100)
    tracker.assign([0, 1, 2, 3], 1)
    tracker.begin([1])
    tracker.give_back(1)
    assert tracker.choose(4, 1) == [0, 2, 3, 4]


def test_split_announced_out_of_turn_is_assigned_once():
    tracker = SplitTracker(6)
    tracker.assign([3], 1)
    tracker.begin([3])
    handed_out = []
    while chosen := tracker.choose(10, 1):
        tracker.assign(chosen, 2)
        handed_out += chosen
    assert handed_out == [0, 1, 2, 4, 5]


def test_tracker_is_read_when_its_last_task_leaves():
    tracker = SplitTracker(2)
    tracker.assign([0], 1)
    tracker.assign([1], 2)
    tracker.begin([0, 1])
    tracker.leave(1)
    assert not tracker.is_read
    tracker.leave(2)
    assert tracker.is_read
    assert tracker.begun_counts == {1: 1, 2: 1}
    assert [tracker.begun_by(1), tracker.begun_by(2)] == [1, 1]
    assert not tracker.is_available(0)


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
    for _ in range(100):
        chosen = tracker.choose(MAX_BATCH, 2)
        tracker.assign(chosen, 1)
        tracker.begin(chosen)
    assert len(tracker.begun) == REMEMBERED
    assert tracker.begun_by(1) == 100 * MAX_BATCH
    assert not tracker.is_available(0)
    assert tracker.is_available(100 * MAX_BATCH)
