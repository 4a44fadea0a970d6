"""Snapshots of the dispatcher's state, and the state of a journal."""

import random

import msgspec
import pytest

from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.errors import DataLossError, FailedPreconditionError
from stoker.service import messages as m
from stoker.service.dispatcher.commits.ledger import IDS_RESERVED, Ledger
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.record import Record
from stoker.service.dispatcher.state.snapshot import compact, dump, load, rebuild, replay
from stoker.service.dispatcher.state.state import State
from tests.service.dispatcher.state.test_record_checks import HISTORY, VERSIONS

_encode = msgspec.msgpack.Encoder().encode

LATER: list[Record] = [
    r.TaskAdded(21, 1, 11, 2, b"key", [2, 3]),
    r.ReaderRevoked(21, 3),
    r.WorkerAdded(13, "host:13", {}, [], VERSIONS),
    r.ReaderAdded(20, 3, 30),
    r.ReaderRemoved(21, 3, (4, 1)),
    r.DropsCounted(20, 5),
    r.TaskDied(20, [CallRange(5, 0, 9), CallRange(6, 3, 4)], 0, "it died"),
    r.TaskDied(20, [CallRange(5, 4, 6)], 0, "it died"),
    r.TaskDied(20, [CallRange(5, 4, 5)], 77, "it died"),
    r.TaskDied(20, [CallRange(5, 8, 9)], 0, "it died"),
    r.WorkerLost(10, "it died"),
    r.TaskAdded(22, 1, 13, 3),
    r.WorkerDrainBegun(11),
    r.SplitsBegun(21, 0, 0, [(3, 5), (6, 10)]),
    r.SplitsDone(21, 0, 0),
    r.TaskEnded(21),
    r.TaskEndReceived(21),
    r.ClientRemoved(2, {21: (9, 0)}),
    r.WorkersWait(1, True),
    r.TaskDelivered(21),
    r.ClientAdded(5, 1, "", key=b"client key"),
    r.JobCancelled("job"),
    r.ClientRemoved(5),
    r.ClientRemoved(3),
    r.TasksStopped(1),
    r.IterationRemoved(1),
    r.DatasetRemoved("data"),
    r.WorkerAdded(12, "host:1", {"local": "process/1"}, ["COLOCATED"], VERSIONS, "x", b"k"),
]


def test_a_loaded_snapshot_behaves_as_the_state_after_every_record():
    """Each snapshot of a history, continued by the rest of it, leads to the same state."""
    history = [*HISTORY, *LATER]
    state = State()
    snapshots = []
    for record in history:
        snapshots.append(list(dump(state)))
        record.apply(state)
    end = list(dump(state))
    assert not [*state.iterations, *state.jobs, *state.tasks, *state.pages]
    for count, snapshot in enumerate(snapshots):
        loaded = load(snapshot)
        assert list(dump(loaded)) == snapshot
        for record in history[count:]:
            record.apply(loaded)
        assert list(dump(loaded)) == end
        assert loaded.local_workers.keys() == {"process"}


def test_counts_and_references_are_computed_anew():
    state = load(dump(rebuild([], [_encode([*HISTORY, *LATER[:2]])])))
    iteration = state.iterations[1]
    assert iteration.readings == 2
    assert (iteration.counts.running, iteration.counts.open) == (2, 2)
    assert list(iteration.unread) == []
    assert list(iteration.by_worker) == [10, 11]
    assert list(state.workers[11].tasks) == [21]
    assert list(state.clients[2].tasks) == [20, 21]
    assert state.page_uses == {b"page": 1}
    assert state.jobs_of == {"data": {"job"}}


def test_a_large_snapshot_has_several_parts():
    state = State()
    for k in range(100):
        r.PageStored(bytes([k]), bytes(100_000)).apply(state)
    parts = list(dump(state))
    assert len(parts) == 10
    assert list(dump(load(parts))) == parts


def test_entities_keep_the_tags_of_written_snapshots():
    [parts] = dump(State())
    assert msgspec.msgpack.decode(parts) == [["_History", "", 0, 0, b"", {}, {}]]
    tags = [
        kind.__struct_config__.tag for kind in (e.WorkerEntry, e.JobEntry, e.Iteration, e.TaskEntry)
    ]
    assert tags == ["_Worker", "_Job", "_Iteration", "_Task"]


def test_compaction_yields_the_snapshot_of_the_state():
    units = [_encode([record]) for record in [*HISTORY, *LATER]]
    half = list(compact([], units[:9]))
    assert list(compact(half, units[9:])) == list(dump(rebuild([], units)))


@pytest.mark.parametrize(
    "unit",
    [b"", b"\xc1", _encode([["Unheard", 1]]), _encode([r.WorkerDrainBegun(99)])],
)
def test_units_of_something_else_are_one_clear_error(unit):
    with pytest.raises(FailedPreconditionError, match=r"not hold the records .* `work_dir`"):
        rebuild([], [unit])


def test_errors_of_the_storage_are_raised_as_they_are():
    def damaged():
        yield _encode(HISTORY)
        raise DataLossError("the journal is damaged")

    with pytest.raises(DataLossError, match="is damaged"):
        rebuild([], damaged())


# ── ledger ───────────────────────────────────────────────────────────────────────────────────────
def test_the_units_of_a_ledger_rebuild_its_state():
    ledger = Ledger(random.Random(1), journaled=True)
    units = [ledger.take_unit()]
    for record in [*HISTORY[1:], *LATER]:
        ledger.commit(record)
        units.append(ledger.take_unit())
    assert ledger.take_unit() == b""
    rebuilt = State()
    for unit in units:
        replay(rebuilt, unit)
    assert list(dump(rebuilt)) == list(dump(ledger.state))


def test_ids_continue_above_all_that_were_given():
    first = Ledger(random.Random(1), journaled=True)
    state = rebuild([], [first.take_unit()])
    told = [first.new_id() for _ in range(10)]  # in no record
    second = Ledger(random.Random(1), state, journaled=True)
    assert second.journal_id == first.journal_id
    assert second.new_id() > max(told)


def test_ids_are_reserved_before_they_are_given():
    ledger = Ledger(random.Random(1), journaled=True)
    ledger.take_unit()
    given = [ledger.new_id() for _ in range(IDS_RESERVED + 1)]
    assert given == list(range(given[0], given[0] + IDS_RESERVED + 1))
    assert given[-1] < ledger.state.history.ids_end
    assert ledger.take_unit() == _encode([r.IdsReserved(ledger.state.history.ids_end)])


def test_a_ledger_without_a_journal_keeps_no_records():
    ledger = Ledger(random.Random(1))
    ledger.commit(HISTORY[1])
    assert ledger.take_unit() == b""


def test_a_record_that_cannot_be_encoded_changes_nothing():
    ledger = Ledger(random.Random(1), journaled=True)
    before = list(dump(ledger.state))
    with pytest.raises(UnicodeEncodeError):
        ledger.commit(r.WorkerAdded(1, "\ud800", {}, [], m.Versions("3.11", "2")))
    assert list(dump(ledger.state)) == before
