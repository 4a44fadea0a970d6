"""Splits that are not begun: each is begun once, none is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.dataset.tree.splits import ENDLESS
from stoker.service.dispatcher.entities.split_ranges import to_ranges
from stoker.service.dispatcher.entities.split_tracker import SplitTracker, split_total
from stoker.service.dispatcher.splits.free_splits import MAX_BATCH, FreeSplits


def free(total: int) -> FreeSplits:
    return FreeSplits(SplitTracker(total))


@given(total=st.integers(0, 60), data=st.data())
def test_every_split_is_begun_once_for_any_task_behavior(total: int, data: st.DataObject):
    tracker = SplitTracker(total)
    splits = FreeSplits(tracker)
    begun: list[int] = []

    def begin(some: list[int], task: int) -> None:
        tracker.begin(to_ranges(some), task)
        splits.begin(some)
        begun.extend(some)

    for _ in range(data.draw(st.integers(0, 40))):
        task = data.draw(st.integers(1, 3))
        action = data.draw(st.sampled_from(["assign", "begin", "announce", "return", "restart"]))
        mine = [split for split, holder in splits.assigned.items() if holder == task]
        if action == "assign":
            splits.assign(splits.choose(data.draw(st.integers(1, 10)), 2), task)
        elif action == "begin" and mine:
            begin(data.draw(st.lists(st.sampled_from(mine), unique=True)), task)
        elif action == "announce" and total:
            split = data.draw(st.integers(0, total - 1))
            if splits.may_begin(split, task):
                begin([split], task)
        elif action == "return":
            splits.give_back(task)
        elif action == "restart":
            splits = FreeSplits(tracker)
        assert splits.all_begun == (len(begun) == total)
        assert splits.available == total - len(begun) - len(splits.assigned)
    splits = FreeSplits(tracker)
    while chosen := splits.choose(MAX_BATCH, 1):
        splits.assign(chosen, 4)
        begin(chosen, 4)
    assert sorted(begun) == list(range(total))
    assert splits.all_begun
    assert sum(tracker.begun_counts.values()) == total


def test_batches_shrink_toward_the_end():
    splits = free(1000)
    sizes = []
    while chosen := splits.choose(100, 2):
        splits.assign(chosen, 1)
        sizes.append(len(chosen))
    assert sizes[0] == 100
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1


def test_batches_do_not_shrink_below_least():
    splits = free(100)
    assert len(splits.choose(50, 2)) == 12
    assert len(splits.choose(50, 2, least=20)) == 20
    assert len(splits.choose(10, 2, least=20)) == 10
    assert len(splits.choose(500, 2, least=200)) == 100


def test_returned_splits_are_assigned_first_in_order():
    splits = free(100)
    splits.assign([0, 1, 2, 3], 1)
    splits.begin([1])
    splits.give_back(1)
    assert splits.choose(4, 1) == [0, 2, 3, 4]


def test_a_split_announced_out_of_turn_is_assigned_to_nobody():
    splits = free(6)
    splits.begin([3])
    handed_out = []
    while chosen := splits.choose(10, 1):
        splits.assign(chosen, 2)
        handed_out += chosen
    assert handed_out == [0, 1, 2, 4, 5]


def test_only_free_and_own_splits_may_be_begun():
    splits = free(4)
    splits.assign([0, 1], 1)
    splits.begin([0])
    assert [splits.may_begin(split, 1) for split in range(-1, 5)] == [
        False,
        False,
        True,
        True,
        True,
        False,
    ]
    assert not splits.may_begin(1, 2)


def test_splits_of_an_infinite_source_stay_small():
    splits = free(split_total(ENDLESS, 3))
    for _ in range(100):
        chosen = splits.choose(MAX_BATCH, 2)
        splits.assign(chosen, 1)
        splits.begin(chosen)
    assert splits.assigned == {}
    assert splits.choose(1, 1) == [100 * MAX_BATCH]
