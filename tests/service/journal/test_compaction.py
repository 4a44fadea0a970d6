import threading

import pytest

from stoker.errors import DataLossError
from stoker.service.journal import object_store, sqlite_store
from stoker.service.journal.compaction import RETRY_SECONDS
from tests.manual_clock import ManualClock
from tests.service.journal.recording import OpenJournal, eventually, keep_last, opened


@pytest.fixture
def small(monkeypatch):
    """Make a compaction due after few units."""
    monkeypatch.setattr(sqlite_store, "COMPACTION_BYTES", 2_000)
    monkeypatch.setattr(object_store, "COMPACTION_BYTES", 2_000)
    monkeypatch.setattr(object_store, "_PART_BYTES", 500)
    monkeypatch.setattr(sqlite_store, "_PART_BYTES", 500)


def test_a_compacted_journal_has_the_same_content(work_dir, small):
    units = [b"%04d" % number * 10 for number in range(1_000)]
    for start in range(0, 1_000, 100):
        with opened(work_dir) as journal:
            assert journal.content == units[:start]
            for unit in units[start : start + 100]:
                journal.append(unit)
            wait_compacted(journal)
    with opened(work_dir) as journal:
        assert journal.content == units
        assert journal.journal.position == 1_000


def test_a_snapshot_replaces_its_units(work_dir, small):
    with opened(work_dir, keep_last) as journal:
        journal.commit(*[b"x" * 100] * 50, b"last")
        wait_compacted(journal)
        journal.commit(b"after")
    with opened(work_dir, keep_last) as journal:
        assert journal.content == [b"last", b"after"]
        assert journal.journal.position == 52


def test_commits_go_on_during_a_compaction(work_dir, small):
    began, may_go_on = threading.Event(), threading.Event()

    def slow(snapshot, units):
        parts = [*snapshot, *units]
        yield parts[0]
        began.set()
        assert may_go_on.wait(30)
        yield from parts[1:]

    units = [b"%03d" % number * 20 for number in range(200)]
    with opened(work_dir, slow) as journal:
        journal.commit(*units[:100])
        assert began.wait(30)
        journal.commit(*units[100:])
        may_go_on.set()
        wait_compacted(journal)
    with opened(work_dir) as journal:
        assert journal.content == units


def test_an_error_of_the_compactor_stops_nothing(work_dir, small, caplog):
    def broken(snapshot, units):
        yield from units
        raise ZeroDivisionError("oops")

    with opened(work_dir, broken) as journal:
        journal.commit(*[b"x" * 100] * 50)
        assert eventually(lambda: "grows; this is an error in stoker" in caplog.text)
        journal.commit(b"after")
        assert "ZeroDivisionError: oops" in caplog.text
    with opened(work_dir) as journal:
        assert journal.content == [b"x" * 100] * 50 + [b"after"]


def test_a_compactor_that_raised_runs_again_later(work_dir, small, caplog):
    clock = ManualClock()
    calls: list[int] = []

    def broken_once(snapshot, units):
        calls.append(len(calls))
        for part in (*snapshot, *units):
            if len(calls) == 1:
                raise ZeroDivisionError
            yield part

    with opened(work_dir, broken_once, clock) as journal:
        journal.commit(*[b"x" * 100] * 50)
        assert eventually(lambda: "grows" in caplog.text)
        journal.commit(b"before")
        assert len(calls) == 1
        clock.advance(RETRY_SECONDS)
        journal.commit(b"after")
        wait_compacted(journal)
    with opened(work_dir) as journal:
        assert journal.content == [b"x" * 100] * 50 + [b"before", b"after"]


def test_an_error_of_the_store_in_a_compaction_fails(work_dir, small, monkeypatch):
    with opened(work_dir) as journal:

        def broken(rewrite):
            raise DataLossError("unit 7 is damaged")

        monkeypatch.setattr(journal.store, "compact", broken)
        journal.append(*[b"x" * 100] * 50)
        assert str(journal.wait_failed()) == "unit 7 is damaged"
        reported = list(journal.reported)
        journal.append(*[b"y"] * 50)
    assert journal.reported == reported
    assert len(journal.failures) == 1


def test_damage_found_by_the_compactor_fails(work_dir, small, monkeypatch):
    """The compactor sees the error of the store; it is not taken for the compactor's."""
    with opened(work_dir) as journal:
        store = journal.store
        compact = store.compact

        def damaged():
            yield b"unit"
            raise DataLossError("unit 2 is damaged")

        def compact_damaged(rewrite):
            def rewrite_damaged(history):
                return rewrite(type(history)(history.snapshot, damaged()))

            compact(rewrite_damaged)

        monkeypatch.setattr(store, "compact", compact_damaged)
        journal.append(*[b"x" * 100] * 50)
        assert str(journal.wait_failed()) == "unit 2 is damaged"


def test_close_stops_a_compaction(work_dir, small):
    began = threading.Event()

    def endless(snapshot, units):
        while True:
            began.set()
            yield b"part"

    with opened(work_dir, endless) as journal:
        journal.commit(*[b"x" * 100] * 50)
        assert began.wait(30)
    with opened(work_dir) as journal:
        assert journal.content == [b"x" * 100] * 50


def test_a_long_history_is_compacted_after_opening(work_dir, monkeypatch, small):
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store, "COMPACTION_BYTES", 1 << 20)
        patch.setattr(object_store, "COMPACTION_BYTES", 1 << 20)
        with opened(work_dir, keep_last) as journal:
            journal.commit(*[b"x" * 100] * 50)
    with opened(work_dir, keep_last) as journal:
        assert len(journal.content) == 50
        journal.commit(b"booted")
        wait_compacted(journal)
    with opened(work_dir) as journal:
        assert journal.content == [b"booted"]


def test_the_size_follows_the_living_state(tmp_path):
    work_dir = tmp_path / "work"
    sizes = []
    with opened(work_dir, keep_last) as journal:
        for _ in range(10):
            journal.commit(*[b"%040d" % number for number in range(100_000)])
            sizes.append(sum(path.stat().st_size for path in work_dir.iterdir()))
        wait_compacted(journal)
        sizes.append(sum(path.stat().st_size for path in work_dir.iterdir()))
    # 16 MiB of units, the same while they are compacted, and a log of 16 MiB.
    assert max(sizes) < 70 << 20
    assert (work_dir / "journal.sqlite").stat().st_size < 50 << 20


def test_freed_space_is_returned(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_store, "COMPACTION_BYTES", 1 << 20)
    with opened(tmp_path, keep_last) as journal:
        journal.commit(*[bytes(1 << 20)] * 60)
        wait_compacted(journal)
        journal.commit(b"last")
        wait_compacted(journal)
    assert (tmp_path / "journal.sqlite").stat().st_size < 8 << 20


def test_objects_stay_few(faulty, monkeypatch):
    monkeypatch.setattr(object_store, "COMPACTION_GROUPS", 50)
    counts = []
    with opened("faulty://work", keep_last) as journal:
        for number in range(1_000):
            journal.commit(b"%d" % number)
            counts.append(len(faulty.objects))
            if number % 100 == 0:
                wait_compacted(journal)
        wait_compacted(journal)
    assert max(counts) < 400
    with opened("faulty://work", keep_last) as journal:
        assert journal.content[-1] == b"999"


def wait_compacted(journal: OpenJournal) -> None:
    """Wait until no compaction is due or running."""
    journal.wait_durable(journal.journal.position)
    store, compaction = journal.store, journal.journal._compaction
    assert eventually(lambda: not store.compaction_due() and not compaction._running)
    assert journal.failures == []
