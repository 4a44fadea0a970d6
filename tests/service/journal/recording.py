"""A journal opened for a test, with a record of its reports."""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from stoker.errors import StokerError
from stoker.service.journal import Compactor, Journal, open_journal
from stoker.service.process.clock import CLOCK, Clock

DEADLINE = 30.0


def keep_all(snapshot: Iterable[bytes], units: Iterable[bytes]) -> Iterator[bytes]:
    """Return a snapshot that contains each unit as a part."""
    yield from snapshot
    yield from units


def keep_last(snapshot: Iterable[bytes], units: Iterable[bytes]) -> Iterator[bytes]:
    """Return a snapshot that contains the last unit."""
    last = b""
    for part in (*snapshot, *units):
        last = part
    yield last


class OpenJournal:
    """A journal and what it has reported.

    Attributes:
        journal: the journal.
        content: the parts and units that it had when it was opened.
        reported: the durable positions, in the order of the reports.
        failures: the errors it has failed with.
        store: where the journal is kept.
    """

    journal: Journal
    content: list[bytes]
    store: Any

    def __init__(
        self, work_dir: object, compact: Compactor = keep_all, clock: Clock = CLOCK
    ) -> None:
        self.reported: list[int] = []
        self.failures: list[StokerError] = []
        self._changed = threading.Condition()
        self.journal = open_journal(
            str(work_dir), compact, failed=self._failed, durable=self._durable, clock=clock
        )
        try:
            self.store = self.journal._store
            self._first = self.journal.position
            history = self.journal.read()
            self.content = [*history.snapshot, *history.units]
        except BaseException:
            self.close()
            raise

    def append(self, *units: bytes) -> int:
        """Append units; return the position of the last one."""
        position = 0
        for unit in units:
            position = self.journal.append(unit)
        return position

    def commit(self, *units: bytes) -> None:
        """Append units and wait until they are durable."""
        self.wait_durable(self.append(*units))

    def wait_durable(self, position: int) -> None:
        """Wait until a position is reported durable."""
        self._wait(lambda: bool(self.failures) or position <= max([self._first, *self.reported]))
        assert not self.failures, self.failures

    def wait_failed(self) -> StokerError:
        """Wait until a failure is reported, and return it."""
        self._wait(lambda: bool(self.failures))
        return self.failures[0]

    def close(self) -> None:
        """Close the journal."""
        self.journal.close(DEADLINE)

    def _wait(self, condition) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE), "deadline exceeded"

    def _durable(self, position: int) -> None:
        with self._changed:
            self.reported.append(position)
            self._changed.notify_all()

    def _failed(self, error: StokerError) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()


@contextlib.contextmanager
def opened(
    work_dir: object, compact: Compactor = keep_all, clock: Clock = CLOCK
) -> Iterator[OpenJournal]:
    """Open a journal, and close it at the end."""
    journal = OpenJournal(work_dir, compact, clock)
    try:
        yield journal
    finally:
        journal.close()


def eventually(condition) -> bool:
    """Poll `condition` until it is true, and return whether it was before the deadline."""
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
