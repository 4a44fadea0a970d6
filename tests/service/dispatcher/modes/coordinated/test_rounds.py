"""Rounds in the dispatcher: changes of the schedule that consumers agree on."""

import random

import msgspec
import pytest

from stoker.dataset.options import Options
from stoker.dataset.tree.splits import IndexSplits, Source
from stoker.dataset.tree.structure import WireNode, structure_of
from stoker.elements.spec import UnknownSpec, spec_to_wire
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.actions import Send
from stoker.service.dispatcher.entities.entities import Iteration
from stoker.service.dispatcher.logic import Dispatcher
from stoker.service.dispatcher.modes.coordinated.rounds import RoundsCoordinator, schedule_of
from stoker.service.dispatcher.modes.coordinated.rules import absent
from stoker.service.dispatcher.modes.coordinated.state import Schedule
from stoker.service.dispatcher.state.snapshot import dump, load
from stoker.service.rules.processing_modes import ShardingPolicy

VERSIONS = m.Versions("3.11", "2")
TREE = msgspec.msgpack.encode([WireNode("sim", [], msgspec.Raw(b"\x80"), {}, "")])
W1, W2, C0, C1, C2 = 1, 2, 10, 11, 12
"""Sessions of workers, and of consumers with indexes 0 and 1, and of a successor."""


class Rounds:
    """A dispatcher, and the last messages about rounds that it sent to each session."""

    def __init__(self, tasks_per_client: int = 128, finite: bool = False) -> None:
        self.most = tasks_per_client
        self.logic = Dispatcher(DispatcherConfig(), random.Random(0), 0.0, tasks_per_client)
        self.got: dict[int, list[m.FromDispatcher]] = {}
        self.registration = m.RegisterDataset(
            "digest",
            TREE,
            spec_to_wire(UnknownSpec()),
            Options(finite_coordinated=finite),
            [Source(0, "sim", "train.py:1", IndexSplits(4))],
            dataset_id="data",
            size=-2,
            structure=structure_of(TREE),
        )
        self.logic.call(self.registration, 0.0)

    def say(self, peer: int, message: m.ToDispatcher) -> None:
        self.got.clear()
        for action in self.logic.received(peer, message, 0.0):
            if isinstance(action, Send):
                self.got.setdefault(action.peer, []).append(action.message)

    def worker(self, peer: int) -> None:
        address = f"host:{peer}"
        self.say(peer, m.WorkerHello(1, 1, address, {"tcp": address}, VERSIONS))

    def consumer(self, peer: int, index: int) -> None:
        parameters = m.JobParameters(ShardingPolicy.OFF, num_consumers=2)
        self.say(
            peer,
            m.ClientHello(1, 1, "data", "job", parameters, (0,), named=True, consumer_index=index),
        )

    def reached(self, peer: int, slot: int, runs: list[int], **fields) -> None:
        """Answer the hold; `runs` are those of the tasks that the consumer knows."""
        known = self.schedule.changes[-1].position.turns
        position = m.RoundPosition(
            slot, known, dict(zip(self.iteration.tasks, runs, strict=False)), slot
        )
        self.say(peer, m.RoundReached(self.hold, position, **fields))

    @property
    def iteration(self) -> Iteration:
        [iteration] = self.logic.state.iterations.values()
        return iteration

    @property
    def tasks(self) -> list[int]:
        return list(self.iteration.tasks)

    @property
    def schedule(self) -> Schedule:
        return schedule_of(self.iteration)

    @property
    def hold(self) -> int:
        [rounds] = self.logic._iterations._coordinators.values()
        assert isinstance(rounds, RoundsCoordinator)
        return rounds._hold

    def rounds(self, peer: int) -> list[m.Rounds]:
        return [x for x in self.got.get(peer, []) if isinstance(x, m.Rounds)]


@pytest.fixture
def rounds() -> Rounds:
    rounds = Rounds()
    rounds.worker(W1)
    rounds.consumer(C0, 0)
    rounds.consumer(C1, 1)
    return rounds


def test_the_first_consumer_starts_the_schedule_at_once():
    rounds = Rounds()
    rounds.worker(W1)
    rounds.worker(W2)
    rounds.consumer(C0, 0)
    first = m.RoundsChange(0, m.RoundPosition(0, rounds.tasks, dict.fromkeys(rounds.tasks, 0)))
    assert rounds.rounds(C0)[-1] == m.Rounds([first])
    rounds.consumer(C1, 1)
    assert rounds.rounds(C1) == [m.Rounds([first])]


def test_a_worker_joins_at_the_slot_of_the_farthest_consumer(rounds):
    rounds.worker(W2)
    hold = rounds.hold
    assert rounds.rounds(C0) == rounds.rounds(C1) == [m.Rounds(hold=hold)]
    assert hold
    rounds.reached(C0, 3, [3])
    assert not rounds.got.get(C1)
    rounds.reached(C1, 5, [5])
    old, new = rounds.tasks
    change = m.RoundsChange(1, m.RoundPosition(5, [old, new], {old: 5, new: 0}, 5))
    assert rounds.rounds(C0) == rounds.rounds(C1)
    assert rounds.rounds(C0)[0].changes[-1] == change
    assert rounds.hold == 0


def test_answers_to_an_older_hold_do_not_count(rounds):
    rounds.worker(W2)
    rounds.say(C0, m.RoundReached(rounds.hold + 1, m.RoundPosition(3)))
    rounds.reached(C1, 5, [5])
    assert len(rounds.schedule.changes) == 1


def test_fillers_replace_what_a_lost_worker_had_sent_to_some_only(rounds):
    [task] = rounds.tasks
    rounds.say(W1, m.WorkerLeave({task: 9}))
    rounds.reached(C0, 5, [5])
    rounds.reached(C1, 2, [2], received={task: 3})
    change = rounds.schedule.changes[-1]
    assert change.fillers == 2
    assert change.position == m.RoundPosition(5, [], {task: 5}, 5)


def _leaving(task: int) -> m.TaskProgress:
    return m.TaskProgress(task, leaving=True)


def test_a_worker_that_drains_is_left_at_the_slot_of_the_farthest_consumer(rounds):
    rounds.worker(W2)
    rounds.reached(C0, 0, [0])
    rounds.reached(C1, 0, [0])
    old, new = rounds.tasks
    rounds.say(W1, m.WorkerDraining())
    rounds.say(W1, _leaving(old))
    rounds.reached(C0, 4, [2, 2])
    rounds.reached(C1, 7, [4, 3])
    change = rounds.schedule.changes[-1]
    assert change.position == m.RoundPosition(7, [new], {old: 4, new: 3}, 7)
    assert (change.left, change.fillers) == ([old], 0)
    rounds.say(W1, _leaving(old))  # on a new session
    assert not rounds.hold


def test_two_workers_that_drain_during_a_join_are_left_together(rounds):
    rounds.worker(W2)
    rounds.say(W1, m.WorkerDraining())
    rounds.say(W2, m.WorkerDraining())
    old, new = rounds.tasks
    rounds.say(W2, _leaving(new))
    rounds.say(W1, _leaving(old))
    rounds.reached(C0, 3, [3])
    rounds.reached(C1, 3, [3])
    change = rounds.schedule.changes[-1]
    assert (change.position.turns, change.left) == ([], [old, new])
    assert change.position.runs == {old: 3, new: 0}
    assert not change.last  # rounds go on with the next worker
    rounds.worker(3)
    rounds.reached(C0, 3, [3], at_end=True)
    rounds.reached(C1, 3, [3], at_end=True)
    assert rounds.schedule.changes[-1].position.turns == rounds.tasks[2:]


def test_a_restarted_dispatcher_knows_the_tasks_that_were_left(rounds):
    [task] = rounds.tasks
    rounds.say(W1, _leaving(task))
    rounds.reached(C0, 3, [3])
    rounds.reached(C1, 3, [3])
    rounds.logic = Dispatcher(
        DispatcherConfig(), random.Random(1), 0.0, state=load(dump(rounds.logic.state))
    )
    [after] = rounds.logic._iterations._coordinators.values()
    assert isinstance(after, RoundsCoordinator)
    assert (after._left, after._joining, after._has_leaving) == ([task], [], False)


def test_nothing_changes_when_a_worker_leaves_that_was_read_to_the_end(rounds):
    [task] = rounds.tasks
    rounds.say(W1, m.TaskProgress(task, delivered=True))
    rounds.say(W1, m.WorkerLeave({task: 0}))
    assert not rounds.hold


def test_consumers_that_are_lost_keep_nobody_from_going_on(rounds):
    rounds.worker(W2)
    rounds.reached(C0, 3, [3])
    rounds.say(C1, m.ClientClose({}, m.RoundPosition(3, rounds.tasks[:1], {rounds.tasks[0]: 3}, 3)))
    assert len(rounds.schedule.changes) == 2
    assert absent(rounds.iteration) == [1]


def test_a_successor_begins_where_its_predecessor_has_closed(rounds):
    [task] = rounds.tasks
    closed = m.RoundPosition(4, [task], {task: 4}, 4)
    rounds.say(C1, m.ClientClose({}, closed))
    rounds.consumer(C2, 1)
    rounds.say(C2, m.RoundReached(0, m.RoundPosition(), ready=True))
    rounds.reached(C0, 5, [5])
    assert rounds.rounds(C2)[-1].changes[0].position == closed


def test_a_successor_of_one_that_was_lost_begins_at_the_slowest(rounds):
    rounds.consumer(C2, 1)
    assert isinstance(rounds.got[C1][0], m.Refused)
    rounds.say(C2, m.RoundReached(0, m.RoundPosition(), ready=True))
    rounds.reached(C0, 5, [5])
    assert rounds.rounds(C2)[-1].changes[0].position.slot == 5


def test_the_tasks_are_replaced_when_all_consumers_were_lost(rounds):
    [task] = rounds.tasks
    for client_id in list(rounds.iteration.clients):
        rounds.logic._clients.expired(client_id, 0.0)
    rounds.consumer(C2, 1)
    rounds.say(C2, m.RoundReached(0, m.RoundPosition(), ready=True))
    assert rounds.iteration.tasks[task].lost.startswith("all consumers of its task were lost")
    new = rounds.tasks[1]
    assert rounds.rounds(C2)[-1].changes[0].position.turns == [new]


def test_the_end_is_agreed_on():
    rounds = Rounds(finite=True)
    rounds.worker(W1)
    rounds.consumer(C0, 0)
    rounds.consumer(C1, 1)
    [task] = rounds.tasks
    at_end = m.RoundReached(0, m.RoundPosition(7, [], {task: 7}, 7), at_end=True)
    rounds.say(C0, at_end)
    assert not rounds.hold  # the task may compute more
    rounds.say(W1, m.TaskProgress(task, exhausted=True))
    position = m.RoundPosition(7, [], {task: 7}, 7)
    rounds.say(C0, m.RoundReached(rounds.hold, position, at_end=True))
    rounds.reached(C1, 2, [2])
    assert rounds.schedule.changes[-1] == m.RoundsChange(1, position, last=True)
    rounds.worker(W2)
    assert rounds.tasks == [task]  # none is added any more


def test_all_consumers_read_the_same_workers_if_there_are_too_many():
    rounds = Rounds(tasks_per_client=1)
    rounds.worker(W1)
    rounds.worker(W2)
    rounds.consumer(C0, 0)
    rounds.consumer(C1, 1)
    [task] = rounds.iteration.tasks.values()
    assert len(task.readers) == 2
    rounds.say(W1, m.WorkerLeave({}))
    new = rounds.iteration.by_worker.values()
    assert [len(task.readers) for task in new] == [2]


def test_a_snapshot_keeps_the_schedule(rounds):
    [task] = rounds.tasks
    closed = m.RoundPosition(4, [task], {task: 4}, 4)
    rounds.say(C1, m.ClientClose({}, closed))
    state = load(dump(rounds.logic.state))
    [iteration] = state.iterations.values()
    schedule = schedule_of(iteration)
    assert schedule.changes == rounds.schedule.changes
    assert (schedule.left_at, absent(iteration)) == ({1: closed}, [1])
    [client] = iteration.clients.values()
    assert (client.consumer_index, schedule.starts) == (0, {client.client_id: (0, None)})
