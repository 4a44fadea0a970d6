"""Replace the history of a journal by a snapshot, on a separate thread."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator

from stoker.service.journal.store import JournalHistory, Store
from stoker.service.process.clock import Clock

RETRY_SECONDS = 60.0
"""A compactor that raised is called again after this time."""

_logger = logging.getLogger("stoker")

Compactor = Callable[[Iterable[bytes], Iterable[bytes]], Iterator[bytes]]
"""Yields the parts of a new snapshot, given those of the last one and the units behind it."""


class Compaction:
    """Compacts a store whenever that is due, on a daemon thread that ends afterwards.

    Args:
        store: the store.
        compact: as for `open_journal`.
        failed: called with the exception of the store, which ends the journal.
        clock: times the next call of a compactor that raised.
    """

    def __init__(
        self, store: Store, compact: Compactor, failed: Callable[[Exception], None], clock: Clock
    ) -> None:
        self._clock = clock
        self._store = store
        self._compact = compact
        self._failed = failed
        self._lock = threading.Lock()
        self._running = False
        self._thread: threading.Thread | None = None
        self._retry_time = 0.0
        self._stopping = threading.Event()

    def start_if_due(self) -> None:
        """Start the thread if a compaction is due and none is running."""
        with self._lock:
            if not self._running and self._is_due():
                self._running = True
                self._thread = threading.Thread(
                    target=self._run, name="stoker-journal-compaction", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Begin no other compaction, and end the running one at its next unit or part."""
        self._stopping.set()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def _is_due(self) -> bool:
        if self._stopping.is_set() or self._clock.now() < self._retry_time:
            return False
        return self._store.compaction_due()

    def _run(self) -> None:
        while True:
            try:
                self._store.compact(lambda history: rewrite(self._compact, history, self._stopping))
            except StoppedError:
                pass
            except CompactorError as error:
                self._retry_time = self._clock.now() + RETRY_SECONDS
                _logger.error(
                    "the journal cannot be compacted and grows; this is an error in stoker",
                    exc_info=error.__cause__,
                )
            except Exception as error:  # noqa: BLE001 - reported
                self.stop()
                self._failed(error)
            # Under the lock, so that a commit that makes the next compaction due is not missed.
            with self._lock:
                if not self._is_due():
                    self._running = False
                    return


class CompactorError(Exception):
    """A compactor raised `__cause__`."""


class StoppedError(Exception):
    """The journal is being closed."""


def rewrite(
    compact: Compactor, history: JournalHistory, stopping: threading.Event
) -> Iterator[bytes]:
    """Yield what `compact` makes of `history`.

    Raises:
        CompactorError: from an exception of `compact`.
        StokerError: if the history cannot be read.
        StoppedError: when `stopping` is set.
    """
    failures: list[Exception] = []  # of reading: `compact` may raise another exception from it

    def read(items: Iterable[bytes]) -> Iterator[bytes]:
        try:
            for item in items:
                _raise_if_set(stopping)
                yield item
        except Exception as error:
            failures.append(error)
            raise

    try:
        for part in compact(read(history.snapshot), read(history.units)):
            _raise_if_set(stopping)
            yield part
    except StoppedError:
        raise
    except Exception as error:
        if failures:
            raise failures[0] from None
        raise CompactorError from error


def _raise_if_set(stopping: threading.Event) -> None:
    if stopping.is_set():
        raise StoppedError
