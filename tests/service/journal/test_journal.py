"""The contract of a journal, in every place."""

import logging
import threading

import pytest

from stoker.errors import FailedPreconditionError, StokerError
from tests.manual_clock import ManualClock
from tests.service.journal.recording import OpenJournal, eventually, opened

pytestmark = pytest.mark.usefixtures("tmp_path")


def test_units_are_read_again_in_order(work_dir):
    units = [b"%d" % number for number in range(2_000)]
    with opened(work_dir) as journal:
        assert journal.content == []
        assert journal.journal.position == 0
        journal.commit(*units[:1])
        journal.commit(*units[1:])
        assert journal.journal.durable_position == 2_000
    with opened(work_dir) as journal:
        assert journal.content == units
        assert journal.journal.position == journal.journal.durable_position == 2_000
        assert journal.append(b"next") == 2_001
    with opened(work_dir) as journal:
        assert journal.content == [*units, b"next"]


def test_reports_rise_to_the_last_position(work_dir):
    with opened(work_dir) as journal:
        journal.commit(*[b"unit"] * 500)
        assert journal.reported == sorted(set(journal.reported))
        assert journal.reported[-1] == 500


def test_close_writes_what_was_appended(work_dir):
    with opened(work_dir) as journal:
        journal.append(*[b"unit"] * 300)
        journal.close()
        assert journal.reported[-1] == 300
        journal.close()
        journal.append(b"ignored")
    with opened(work_dir) as journal:
        assert journal.content == [b"unit"] * 300


def test_large_and_empty_units_are_kept(work_dir):
    units = [b"", bytes(3 << 20), b"", b"x" * (5 << 20), bytes(3 << 20)]
    with opened(work_dir) as journal:
        journal.commit(*units)
    with opened(work_dir) as journal:
        assert journal.content == units


def test_a_journal_is_not_read_after_an_append(work_dir):
    with opened(work_dir) as journal:
        journal.append(b"unit")
        with pytest.raises(FailedPreconditionError, match="before the first unit"):
            journal.journal.read()


def test_many_appends_become_few_commits(work_dir, monkeypatch):
    held = threading.Event()
    with opened(work_dir) as journal:
        store = journal.store
        write, groups = store.write, []

        def counted(units):
            held.wait()
            groups.append(len(units))
            write(units)

        monkeypatch.setattr(store, "write", counted)
        journal.append(*[b"u" * 1000] * 10_000)
        held.set()
        journal.wait_durable(10_000)
    assert sum(groups) == 10_000
    assert 3 <= len(groups) <= 5  # 10 MB, 4 MiB each, and the first may contain few


def test_a_failure_is_reported_once_and_ends_it(work_dir, monkeypatch):
    with opened(work_dir) as journal:
        journal.commit(b"first")

        def fail(units):
            raise StokerError("disk full")

        monkeypatch.setattr(journal.store, "write", fail)
        journal.append(b"lost")
        assert str(journal.wait_failed()) == "disk full"
        position = journal.append(b"ignored")
        assert position == 3
    assert len(journal.failures) == 1
    assert journal.reported == [1]
    assert journal.journal.durable_position == 1
    with opened(work_dir) as journal:
        assert journal.content == [b"first"]


def test_an_unexpected_exception_is_a_failure(work_dir, monkeypatch, caplog):
    with opened(work_dir) as journal:

        def fail(units):
            raise ZeroDivisionError("oops")

        monkeypatch.setattr(journal.store, "write", fail)
        journal.append(b"lost")
        assert "ZeroDivisionError: oops" in str(journal.wait_failed())
    assert "an error in stoker" in caplog.text


def test_an_error_in_a_report_is_logged(work_dir, caplog, monkeypatch):
    with opened(work_dir) as journal:
        durable = journal.journal._durable

        def raising(position):
            durable(position)
            raise RuntimeError("event loop is closed")

        monkeypatch.setattr(journal.journal, "_durable", raising)
        journal.commit(b"one")
        journal.commit(b"two")
    assert "event loop is closed" in caplog.text


def test_an_idle_journal_checks_its_store(work_dir, monkeypatch):
    clock = ManualClock()
    checked = threading.Event()
    with opened(work_dir, clock=clock) as journal:
        monkeypatch.setattr(journal.store, "check", checked.set)
        assert clock.eventually(checked.is_set)


def test_close_does_not_wait_for_a_store_that_hangs(work_dir, monkeypatch, caplog):
    journal = OpenJournal(work_dir)
    held = threading.Event()
    write = journal.store.write

    def hang(units):
        held.wait()
        write(units)

    monkeypatch.setattr(journal.store, "write", hang)
    for _ in range(1_000):
        journal.append(b"unit")  # does not block
    with caplog.at_level(logging.WARNING, "stoker"):
        journal.journal.close(0.01)
    assert "1000 units wait" in caplog.text
    held.set()
    journal.close()
    assert journal.reported[-1] == 1_000


def test_close_in_a_report_does_not_wait_for_itself(work_dir, monkeypatch):
    with opened(work_dir) as journal:
        durable = journal.journal._durable

        def closing(position):
            journal.journal.close(30)
            durable(position)

        monkeypatch.setattr(journal.journal, "_durable", closing)
        journal.commit(b"unit")
        assert eventually(lambda: not journal.journal._thread.is_alive())
