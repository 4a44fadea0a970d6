"""Random histories of a journal, compared with a list."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stoker.service.journal import sqlite_store
from tests.service.journal.faulty_stores import FaultyStore
from tests.service.journal.recording import OpenJournal, keep_all

SETTINGS = settings(
    max_examples=30, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)


class JournalMachine(RuleBasedStateMachine):
    """A journal that is written, compacted, crashed and opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.units: list[bytes] = []
        self.known = 0  # units that were reported durable
        self.setup()
        self.open = self.reopen()

    def setup(self) -> None:
        """Make an empty work_dir."""
        self.folder = Path(tempfile.mkdtemp())
        self.work_dir = str(self.folder / "0")
        self.copies = 0

    def crash(self) -> None:
        """Continue with the files as they are now, as if the process were killed."""
        self.copies += 1
        copy = self.folder / str(self.copies)
        with self.open.store._lock:
            shutil.copytree(self.work_dir, copy)
        self.open.close()
        self.work_dir = str(copy)

    def reopen(self) -> OpenJournal:
        journal = OpenJournal(self.work_dir)
        kept = len(journal.content)
        assert self.known <= kept <= len(self.units)
        assert journal.content == self.units[:kept]
        assert journal.journal.position == kept
        self.units = self.units[:kept]
        self.known = kept
        return journal

    @rule(units=st.lists(st.binary(max_size=2_000), max_size=20))
    def append(self, units):
        self.units += units
        assert self.open.append(*units) in (0, len(self.units))

    @rule()
    def wait(self):
        self.open.wait_durable(len(self.units))
        self.known = len(self.units)

    @rule(fail_after=st.one_of(st.none(), st.integers(0, 30)))
    def compact(self, fail_after):
        def rewrite(history):
            parts = iter(keep_all(history.snapshot, history.units))
            if fail_after is None:
                return parts
            return failing(parts, fail_after)

        with contextlib.suppress(ZeroDivisionError):
            self.open.store.compact(rewrite)

    @rule()
    def close_and_reopen(self):
        self.open.close()
        self.known = len(self.units)
        self.open = self.reopen()

    @rule()
    def crash_and_reopen(self):
        self.crash()
        self.open = self.reopen()

    @precondition(lambda self: self.open.reported)
    @invariant()
    def reports_are_true(self):
        assert self.open.reported[-1] <= len(self.units)
        self.known = max(self.known, self.open.reported[-1])

    def teardown(self):
        self.open.close()
        shutil.rmtree(self.folder)


class ObjectJournalMachine(JournalMachine):
    """The same in an object store; a crash is a successor while the dispatcher is frozen."""

    def setup(self) -> None:
        FaultyStore.reset()
        self.work_dir = "faulty://work"
        self.frozen: list[OpenJournal] = []

    def crash(self) -> None:
        self.frozen.append(self.open)

    @precondition(lambda self: self.frozen)
    @rule()
    def wake(self):
        old = self.frozen.pop()
        old.append(b"too late")
        assert "another dispatcher" in str(old.wait_failed())
        old.close()

    def teardown(self):
        for journal in (self.open, *self.frozen):
            journal.close()
        FaultyStore.reset()


def failing(parts, count):
    for number, part in enumerate(parts):
        if number == count:
            raise ZeroDivisionError
        yield part
    raise ZeroDivisionError


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(sqlite_store, "_PART_BYTES", 3_000)


def test_random_histories_of_a_local_journal():
    run_state_machine_as_test(JournalMachine, settings=SETTINGS)


def test_random_histories_of_a_journal_in_objects():
    run_state_machine_as_test(ObjectJournalMachine, settings=SETTINGS)
