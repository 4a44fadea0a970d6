"""Records that do not fit the state are refused before they change it."""

from typing import get_args

import pytest

from stoker.dataset.options import Options
from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.dataset.tree.splits import IndexSplits, ShardBy, Source
from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.dispatcher.modes.coordinated.state import Schedule, ScheduleChange
from stoker.service.dispatcher.modes.dynamic.state import DynamicState
from stoker.service.dispatcher.modes.state import ModeState
from stoker.service.dispatcher.modes.static.state import ShardState
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.changes import ImpossibleRecordError, check
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.snapshot import dump
from stoker.service.dispatcher.state.state import State
from stoker.service.rules.processing_modes import ShardingPolicy

VERSIONS = m.Versions("3.11", "2")
SOURCES = [Source(0, "range", "", IndexSplits(10))]


def dataset(dataset_id: str, digest: str = "d") -> r.DatasetAdded:
    return r.DatasetAdded(
        dataset_id, digest, b"tree", b"", None, Options(), -2, SOURCES, True, VERSIONS, None
    )


HISTORY: list[Record] = [
    r.Booted("journal", 1, 100, 1),
    dataset("data"),
    r.JobAdded("job", True, "data", m.JobParameters(ShardingPolicy.DYNAMIC, num_consumers=2)),
    r.IterationAdded(1, "job", (0,), 7, DynamicState(agreement=Schedule())),
    r.ClientAdded(2, 1, ""),
    r.ClientAdded(3, 1, ""),
    r.WorkerAdded(10, "host:1", {}, [], VERSIONS),
    r.WorkerAdded(11, "host:2", {}, [], VERSIONS, place=0),
    r.PageStored(b"page", b"\x91\x01"),
    r.PageListed(1, 1, 1, b"page"),
    r.SplitsKnown(1, [m.SplitSource(0, 10, 10)]),
    r.TaskAdded(20, 1, 10, 1, readers=[2]),
    r.SplitsBegun(20, 0, 0, [(0, 3), (5, 6)]),
]


@pytest.fixture
def state() -> State:
    state = State()
    for record in HISTORY:
        check(state, record)
        record.apply(state)
    return state


IMPOSSIBLE = [
    r.Booted("other", 100, 200, 2),
    r.Booted("journal", 99, 200, 2),
    r.Booted("journal", 100, 100, 2),
    r.IdsReserved(100),
    dataset("data"),
    r.DatasetKept("unknown"),
    r.TreeDropped("unknown"),
    r.DatasetRemoved("data"),
    r.WorkerAdded(10, "host:3", {}, [], VERSIONS),
    r.WorkerAdded(12, "host:1", {}, [], VERSIONS),
    r.WorkerAdded(12, "host:3", {}, [], VERSIONS, place=0),
    r.WorkerDrainBegun(12),
    r.WorkerLost(12, "it died"),
    r.JobAdded("job", True, "data", m.JobParameters(ShardingPolicy.OFF)),
    r.JobAdded("other", True, "unknown", m.JobParameters(ShardingPolicy.OFF)),
    r.JobDatasetChanged("job", "unknown"),
    r.JobCancelled("unknown"),
    r.IterationAdded(1, "job", (1,), 7, DynamicState(agreement=Schedule())),
    r.IterationAdded(4, "job", (0,), 7, DynamicState(agreement=Schedule())),
    r.IterationAdded(4, "job", (1,), 7),
    r.IterationAdded(4, "job", (1,), 7, ModeState(agreement=Schedule())),
    r.IterationAdded(
        4, "job", (1,), 7, ShardState(agreement=Schedule(), shards=2, by=ShardBy.HINT)
    ),
    r.IterationFailed(4, ErrorRecord("InternalError", "it failed")),
    r.PageStored(b"page", b"\x91\x01"),
    r.PageListed(1, 1, 1, b"unknown"),
    r.PageListed(1, 1, 0, b"page"),
    r.ListingDropped(4),
    r.SplitsKnown(1, []),
    r.TaskDied(20, [], 0, "it died"),
    r.TaskDied(20, [CallRange(5, 3, 3)], 0, "it died"),
    r.TaskDied(21, [CallRange(5, 3, 4)], 0, "it died"),
    r.TaskAdded(20, 1, 11, 1),
    r.TaskAdded(21, 1, 10, 1),
    r.TaskAdded(21, 1, 11, 1, readers=[4]),
    r.ReaderAdded(20, 2, 2),
    r.ReaderAdded(20, 4, 4),
    r.ReaderRevoked(20, 3),
    r.ReaderRemoved(20, 3, (0, 0)),
    r.WorkersWait(4, True),
    r.TaskEnded(21),
    r.TaskEndReceived(21),
    r.TaskDelivered(21),
    r.TaskDropped(21, "nobody reads it"),
    r.DropsCounted(21, 1),
    r.SplitsBegun(20, 0, 0, []),
    r.SplitsBegun(20, 0, 0, [(2, 4)]),
    r.SplitsBegun(20, 0, 0, [(4, 4)]),
    r.SplitsBegun(20, 0, 0, [(8, 11)]),
    r.SplitsBegun(20, 0, 0, [(8, 9), (7, 8)]),
    r.SplitsBegun(20, 0, 0, [(7, 9), (8, 10)]),
    r.SplitsBegun(20, 1, 0, [(0, 1)]),
    r.SplitsBegun(21, 0, 0, [(7, 8)]),
    r.SplitsDone(20, 1, 0),
    r.ClientAdded(2, 1, ""),
    r.ClientAdded(4, 4, ""),
    r.ClientRemoved(4),
    r.AgreementChanged(1, ScheduleChange(m.RoundsChange(1, m.RoundPosition()), {}, 0)),
    r.AgreementChanged(1, ScheduleChange(m.RoundsChange(0, m.RoundPosition(-1)), {}, 0)),
    r.AgreementChanged(1, ScheduleChange(m.RoundsChange(0, m.RoundPosition(0, [99])), {}, 0)),
    r.AgreementChanged(
        1, ScheduleChange(m.RoundsChange(0, m.RoundPosition(0, [], {99: 1})), {}, 0)
    ),
    r.AgreementChanged(
        1, ScheduleChange(m.RoundsChange(0, m.RoundPosition()), {99: (0, m.RoundPosition())}, 0)
    ),
    r.TasksStopped(4),
    r.IterationRemoved(1),
]


@pytest.mark.parametrize("record", IMPOSSIBLE, ids=repr)
def test_an_impossible_record_is_refused(state: State, record: Record):
    before = list(dump(state))
    with pytest.raises(ImpossibleRecordError):
        check(state, record)
    assert list(dump(state)) == before


def test_every_record_has_an_impossible_example():
    assert {type(record) for record in IMPOSSIBLE} == set(get_args(r.AnyRecord))


def test_no_message_has_the_name_of_a_record():
    assert not {kind.__name__ for kind in get_args(r.AnyRecord)} & vars(m).keys()


def test_a_task_changes_its_state_once(state: State):
    for record in (r.TaskEnded(20), r.TaskDelivered(20)):
        check(state, record)
        record.apply(state)
        with pytest.raises(ImpossibleRecordError):
            check(state, record)


def test_stopped_tasks_are_neither_read_nor_stopped_again(state: State):
    r.TasksStopped(1).apply(state)
    for record in (r.TasksStopped(1), r.TaskEndReceived(20), r.TaskDropped(20, "it was stopped")):
        with pytest.raises(ImpossibleRecordError):
            check(state, record)


def test_a_dropped_tree_may_be_added_again(state: State):
    r.TreeDropped("data").apply(state)
    check(state, dataset("data"))
