"""A journal: one thread commits the appended units in groups, and another one compacts."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from stoker.errors import FailedPreconditionError, StokerError
from stoker.service.journal.compaction import Compaction, Compactor
from stoker.service.journal.store import JournalHistory, Store
from stoker.service.process.clock import CLOCK, Clock
from stoker.wire.transports.forking import close_in_child

GROUP_BYTES = 4 << 20
"""A commit ends with the unit that brings it to this size; the others wait for the next."""
IDLE_SECONDS = 10.0
"""A journal without appends checks at this interval that it may still write."""
_logger = logging.getLogger("stoker")


# The journal stores units and a snapshot as bytes and knows nothing of records; `append` only
# queues. (docs/decisions/011)
class Journal:
    """Durable history of a dispatcher: units in order, and a snapshot that replaces the oldest.

    The first unit has position 1. One thread calls `read`, `append` and `close`. Only `close` and
    the iterators that `read` returns wait for I/O. A forked child has no journal: its copy ignores
    what is appended.

    Args:
        store: where it is kept; the journal closes it.
        compact: as for `open_journal`, like `failed`, `durable` and `clock`.

    Attributes:
        position: of the last unit that was appended, or else of the last one read.
        durable_position: of the last unit that is durable.
    """

    def __init__(
        self,
        store: Store,
        compact: Compactor,
        *,
        failed: Callable[[StokerError], None],
        durable: Callable[[int], None],
        clock: Clock = CLOCK,
    ) -> None:
        self._clock = clock
        self._store = store
        self._failed = failed
        self._durable = durable
        self.position = self.durable_position = store.position
        self._appended: deque[bytes | None] = deque()
        # `append` only queues: the dispatcher's event loop must not wait for a disk.
        self._changed = threading.Condition()
        self._appending = False
        self._closed = False
        self._failure: StokerError | None = None
        # Held for each report, so that nothing is reported durable after a failure.
        self._report_lock = threading.Lock()
        self._compaction = Compaction(store, compact, self._fail, clock)
        self._forked_copy = _ForkedCopy(self)
        close_in_child(self._forked_copy)
        self._thread = threading.Thread(target=self._run, name="stoker-journal", daemon=True)
        self._thread.start()

    def read(self) -> JournalHistory:
        """Return the history as it was when the journal was opened.

        Its iterators raise DataLossError where it is damaged.

        Raises:
            FailedPreconditionError: after the first `append`.
        """
        if self._appending:
            raise FailedPreconditionError("a journal is read before the first unit is appended")
        return self._store.read()

    def append(self, unit: bytes) -> int:
        """Add a unit, and return its position; when it is durable, `durable` is called.

        After a failure or `close`, the unit is ignored.
        """
        self._appending = True
        self.position += 1
        if not self._closed and self._failure is None:
            self._put(unit)
        return self.position

    def close(self, timeout: float) -> None:
        """Write the appended units, stop the threads and release the lock; idempotent.

        Args:
            timeout: the most seconds to wait; afterwards the same goes on in a daemon thread.
        """
        if not self._closed:
            self._closed = True
            self._compaction.stop()
            self._put(None)
        if threading.current_thread() is self._thread:
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            count = self.position - self.durable_position
            _logger.warning("the journal is not closed after %g s: %d units wait", timeout, count)

    def _put(self, unit: bytes | None) -> None:
        with self._changed:
            self._appended.append(unit)
            self._changed.notify()

    def _run(self) -> None:
        ended = False
        try:
            while not ended and self._failure is None:
                units, ended = self._next_group()
                if units:
                    self._commit(units)
                elif not ended:
                    self._store.check()
        except Exception as error:  # noqa: BLE001 - reported
            self._fail(error)
        while not ended:  # the lock is held until the dispatcher has stopped
            _, ended = self._next_group()
        self._compaction.stop()
        self._compaction.join()
        self._store.close()

    def _next_group(self) -> tuple[list[bytes], bool]:
        """Wait for units; return those of one commit, and whether `close` was called after them.

        Without appends, the list is empty after IDLE_SECONDS.
        """
        units: list[bytes] = []
        size = 0
        with self._changed:
            self._clock.wait_for(self._changed, lambda: bool(self._appended), IDLE_SECONDS)
            while self._appended and size < GROUP_BYTES:
                if (unit := self._appended.popleft()) is None:
                    return units, True
                units.append(unit)
                size += len(unit)
        return units, False

    def _commit(self, units: list[bytes]) -> None:
        self._store.write(units)
        with self._report_lock:
            if self._failure is None:
                self.durable_position = self._store.position
                _call(self._durable, self.durable_position)
        self._compaction.start_if_due()

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, StokerError):
            _logger.error("an error in stoker stops the journal", exc_info=error)
            error = StokerError(f"the journal failed: {type(error).__name__}: {error}")
        with self._report_lock:
            if self._failure is None:
                self._failure = error
                _call(self._failed, error)


class _ForkedCopy:
    """Gives up a forked child's copy of a journal: no thread serves it, and the lock is not its."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def close(self) -> None:
        self._journal._closed = True
        self._journal._store.abandon()


def _call(report: Callable[..., None], *arguments: object) -> None:
    """Call a function of the dispatcher; an error in it does not stop the journal."""
    try:
        report(*arguments)
    except Exception:
        _logger.exception("the report of the journal was not received")
