"""Rounds: all consumers derive the same sequence, whatever the order of messages."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import DataLossError
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.client.orders.round_order import RoundOrder, new_schedule
from stoker.service.messages import JobParameters, RoundPosition, RoundReached, RoundsChange
from stoker.service.rules.processing_modes import ShardingPolicy

A, B, C = 21, 22, 23


def _change(number, slot, turns, runs=None, step=None, **fields):
    position = RoundPosition(slot, turns, runs or {}, slot if step is None else step)
    return RoundsChange(number, position, **fields)


def _order(*turns):
    order = RoundOrder()
    order.change([_change(0, 0, list(turns))], 0, [])
    return order


def _put(order, task_id, *runs):
    for run in runs:
        order.put(ReceivedChunk([run], 1, task_id=task_id, number=run))


def _taken(order):
    """Return (task, run) of all that can be taken now."""
    chunks = iter(order.take, None)
    return [(chunk.task_id, chunk.number) for chunk in chunks]


def test_coordinated_jobs_are_read_in_turns():
    parameters = JobParameters(ShardingPolicy.OFF, num_consumers=2)
    assert type(new_schedule(parameters)) is RoundOrder
    assert new_schedule(JobParameters(ShardingPolicy.DYNAMIC)) is None


def test_tasks_take_turns_in_spite_of_the_order_of_arrival():
    order = _order(A, B)
    _put(order, B, 0, 1)
    assert _taken(order) == []
    _put(order, A, 0)
    assert _taken(order) == [(A, 0), (B, 0)]
    _put(order, A, 1)
    assert _taken(order) == [(A, 1), (B, 1)]


def test_a_task_that_has_ended_has_no_more_turns():
    order = _order(A, B)
    _put(order, A, 0)
    order.task_ended(A)
    _put(order, B, 0, 1)
    assert _taken(order) == [(A, 0), (B, 0), (B, 1)]
    order.task_ended(B)
    assert order.take() is None
    assert not order.is_over(True, True)  # that is agreed on
    order.change([_change(1, 3, [], {A: 1, B: 2}, last=True)], 0, [])
    assert order.take() is None
    assert order.is_over(True, True)


def test_a_held_consumer_passes_no_slot_until_the_change():
    order = _order(A)
    _put(order, A, 0, 1, 2)
    assert order.take()
    order.change([], 7, [])
    assert _taken(order) == []
    report = order.report(ready=True)
    assert report == RoundReached(7, RoundPosition(1, [A], {A: 1}, 1))
    assert order.report(ready=True) is None
    _put(order, B, 0)
    order.change([_change(1, 2, [A, B], {A: 2, B: 0})], 0, [])
    assert _taken(order) == [(A, 1), (A, 2), (B, 0)]


def test_what_a_lost_task_owes_comes_in_filler_slots():
    order = _order(A, B)
    _put(order, B, 0, 1)
    order.task_lost(A)
    assert _taken(order) == []  # nobody knows what the others have
    order.change([_change(1, 2, [B], {A: 1, B: 1}, fillers=1)], 0, [])
    assert (order.owed, _taken(order)) == (0, [(B, 0), (B, 1)])
    assert (order.step, order.owed, order.counts["rounds_mixed"]) == (2, 0, 2)


def test_consumers_that_owe_nothing_skip_filler_slots():
    order = _order(A, B)
    _put(order, A, 0)
    _put(order, B, 0, 1, 2)
    assert _taken(order)[:2] == [(A, 0), (B, 0)]
    order.task_lost(A)
    order.change([_change(1, 2, [B], {A: 1, B: 1}, fillers=1)], 0, [])
    assert _taken(order) == [(B, 2)]
    assert [chunk.number for chunk in order.take_discarded()] == [1]
    assert (order.slot, order.step) == (4, 3)


def test_filler_slots_do_not_wait_for_the_user():
    """The others may be in step with the user, and need what follows."""
    order = _order(A)
    order.change([_change(1, 0, [A], fillers=2)], 0, [])
    _put(order, A, 0, 1)
    assert [chunk.number for chunk in order.take_discarded()] == [0, 1]
    assert order.slot == 2


def test_elements_of_a_lost_task_that_others_lack_are_discarded():
    order = _order(A, B)
    _put(order, A, 0, 1)
    order.task_lost(A)
    assert order.take()
    order.change([_change(1, 1, [B], {A: 1})], 0, [])
    _put(order, B, 0)
    assert _taken(order) == [(B, 0)]
    assert [(x.task_id, x.number) for x in order.take_discarded()] == [(A, 1)]


def test_a_task_whose_worker_drains_is_read_up_to_the_change():
    order = _order(A, B)
    _put(order, A, 0, 1, 2)
    order.change([_change(1, 3, [B], {A: 2, B: 1}, left=[A])], 0, [])
    assert order.to_leave == [(A, 2)]
    order.task_ended(A)  # it is left
    assert order.to_leave == []
    _put(order, B, 0, 1)
    assert _taken(order) == [(A, 0), (B, 0), (A, 1), (B, 1)]
    assert [(x.task_id, x.number) for x in order.take_discarded()] == [(A, 2)]
    assert (order.owed, order.mixed_rounds) == (0, 0)


def test_runs_of_a_left_task_that_nobody_has_any_more_are_passed():
    """The consumer has restarted: its predecessor had received them."""
    order = _order(A, B)
    order.task_ended(A)
    order.change([_change(1, 2, [B], {A: 1, B: 1}, left=[A], fillers=0)], 0, [])
    _put(order, B, 0)
    assert _taken(order) == [(B, 0)]
    assert (order.slot, order.owed, order.mixed_rounds) == (2, 1, 1)


def test_the_latest_element_is_repeated_if_nothing_is_left():
    order = _order(A, B)
    _put(order, A, 0)
    assert order.take()
    order.task_lost(B)
    order.change([_change(1, 2, [], {A: 1, B: 1}, last=True)], 0, [])
    again = order.take()
    assert again is not None
    assert (again.number, again.repeated) == (0, True)
    assert order.take() is None
    assert order.is_over(True, True)
    assert order.counts["elements_repeated"] == 1


def test_the_repeated_element_is_there_though_its_reader_emptied_the_chunk():
    order = _order(A, B)
    _put(order, A, 0)
    taken = order.take()
    assert taken is not None
    elements = list(taken.elements)
    taken.elements[:] = [None]
    order.task_lost(B)
    order.change([_change(1, 3, [], {A: 1, B: 2}, last=True)], 0, [])
    again = order.take()
    assert again is not None
    assert again.elements == elements


def test_a_consumer_that_got_nothing_raises_what_it_lacks():
    order = _order(A)
    order.task_lost(A)
    order.change([_change(1, 2, [], {A: 2}, last=True)], 0, [])
    assert order.take() is None
    assert not order.is_over(True, True)
    assert isinstance(order.error, DataLossError)
    assert str(order.error).startswith("2 elements for this consumer were lost")


def test_a_change_that_never_begins_is_left_out():
    """The only consumer that was as far has left."""
    order = _order(A)
    _put(order, A, 0, 1, 2)
    _put(order, B, 0)
    changes = [_change(1, 3, [B], {A: 3}), _change(2, 1, [A, B], {A: 1})]
    order.change(changes, 0, [])
    assert _taken(order) == [(A, 0), (A, 1), (B, 0), (A, 2)]


def test_a_consumer_that_restarts_begins_at_its_position():
    order = RoundOrder()
    assert not order.started
    assert order.report(ready=False) is None
    assert order.report(ready=True) == RoundReached(0, RoundPosition(), ready=True)
    order.change([_change(4, 10, [B, A], {A: 5, B: 5}, 9)], 0, [])
    assert order.started
    assert (order.slot, order.step) == (10, 9)
    assert [order.first_frame(task_id) for task_id in (A, B, C)] == [5, 5, 0]
    _put(order, A, 5)
    _put(order, B, 5)
    assert _taken(order) == [(B, 5), (A, 5)]


def test_a_consumer_asks_for_fillers_of_what_it_cannot_get():
    order = _order(A)
    order.skipped(A, 2)
    _put(order, A, 2)
    assert _taken(order) == [(A, 2)]
    assert order.report(ready=True) == RoundReached(0, RoundPosition(3, [A], {A: 3}, 3), {}, 2)
    assert order.report(ready=True) is None


def test_a_task_without_elements_is_left_out_as_told():
    """It ended before this consumer came."""
    order = _order(A, B)
    _put(order, B, 0)
    assert _taken(order) == []
    order.change([], 0, [A])
    assert _taken(order) == [(B, 0)]


@pytest.mark.parametrize(
    ("here", "coming", "expected"),
    [
        ({}, {}, A),
        ({A: 1}, {}, B),
        ({A: 1}, {B: 1}, C),
        ({A: 1, B: 1}, {C: 1}, A),
        ({B: 2, C: 1}, {A: 1}, A),
    ],
)
def test_credit_goes_to_the_task_of_the_first_slot_without_element(here, coming, expected):
    order = _order(A, B, C)
    for task_id, count in here.items():
        _put(order, task_id, *range(count))
    assert order.needed_first([C, B, A], lambda task_id: coming.get(task_id, 0)) == expected
    others = [task_id for task_id in (A, B, C) if task_id != expected]
    assert order.needed_first(others, lambda task_id: coming.get(task_id, 0)) is None


@dataclass
class _Schedule:
    """Tasks by the slot at which they join, and the number of runs of each."""

    joins: list[int]
    lengths: list[int]
    slots: list[tuple[int, int]] = field(default_factory=list)
    changes: list[RoundsChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Derive the sequence of (task, run) slot by slot."""
        turns: list[int] = []
        passed = [0] * len(self.joins)
        waiting = sorted(range(len(self.joins)), key=lambda task: self.joins[task])
        while waiting or turns:
            joining = [x for x in waiting if self.joins[x] <= len(self.slots) or not turns]
            joining = joining if turns else joining[:1]
            if joining:
                waiting = [x for x in waiting if x not in joining]
                turns = turns + joining
                runs = {x: count for x, count in enumerate(passed) if x not in waiting}
                slot, number = len(self.slots), len(self.changes)
                self.changes.append(_change(number, slot, list(turns), runs))
            while turns and passed[turns[0]] == self.lengths[turns[0]]:
                turns.pop(0)
            if turns:
                task = turns.pop(0)
                self.slots.append((task, passed[task]))
                passed[task] += 1
                turns.append(task)
        runs = dict(enumerate(passed))
        self.changes.append(_change(len(self.changes), len(self.slots), [], runs, last=True))


@given(
    tasks=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=5),
    data=st.data(),
)
def test_all_orders_of_messages_give_the_same_sequence(tasks, data):
    schedule = _Schedule([join for join, _ in tasks], [length for _, length in tasks])
    order = RoundOrder()
    unsent = dict.fromkeys(range(len(tasks)), 0)
    changes = list(schedule.changes)
    found: list[tuple[int, int]] = []
    while not order.is_over(True, True):
        choices = [f"task {task}" for task in unsent]
        if changes:
            choices.append("change")
        if not changes or order.slot < changes[0].position.slot:  # else it would be held
            choices.append("take")
        choice = data.draw(st.sampled_from(choices))
        if choice == "change":
            order.change([changes.pop(0)], 0, [])
        elif choice == "take":
            if (chunk := order.take()) is not None:
                found.append((chunk.task_id, chunk.number))
            elif changes and not unsent:
                order.change([changes.pop(0)], 0, [])
        else:
            task = int(choice.split()[1])
            if unsent[task] == schedule.lengths[task]:
                order.task_ended(task)
                del unsent[task]
            else:
                _put(order, task, unsent[task])
                unsent[task] += 1
    assert found == schedule.slots
    assert not order.owed
