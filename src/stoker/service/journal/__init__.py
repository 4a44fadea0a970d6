"""The journal of a dispatcher: it stores units of bytes, and knows nothing of their content."""

from collections.abc import Callable

from stoker.dataset.formats.storage import is_url
from stoker.errors import StokerError
from stoker.service.journal.compaction import Compactor
from stoker.service.journal.journal import Journal
from stoker.service.journal.store import JournalHistory, Store
from stoker.service.process.clock import CLOCK, Clock

__all__ = ["Compactor", "Journal", "JournalHistory", "open_journal"]


def open_journal(
    work_dir: str,
    compact: Compactor,
    *,
    failed: Callable[[StokerError], None],
    durable: Callable[[int], None],
    clock: Clock = CLOCK,
) -> Journal:
    """Return the journal in `work_dir`, which is created if it does not exist.

    Blocks on I/O: for a URL, it reads the whole history, and while the store cannot be reached, it
    tries for a minute.

    Args:
        work_dir: a local directory, or a URL that fsspec opens, such as ``gs://bucket/name``. A
            directory is locked: another dispatcher cannot open it. At a URL this dispatcher
            replaces the one that serves it, whose next write fails.
        compact: called in a thread with the parts of the last snapshot and the units since then,
            each to be iterated once; yields the parts of the snapshot that replaces them, each of
            at most a few MiB. An exception is logged and leaves the history as it is.
        failed: called once, in a thread of the journal, when units can no longer be made durable.
        durable: called in a thread of the journal with the position of the last durable unit.
        clock: times checks of an idle journal, and what is tried again.

    Raises:
        FailedPreconditionError: if another dispatcher serves `work_dir`.
        InvalidConfigError: if another program, or another version of stoker, wrote `work_dir`, or
            it is unsuitable or cannot be created.
        DataLossError: if it is damaged.
        PermissionDeniedError: if it cannot be written.
        UnavailableError: if it cannot be reached, or the disk is full.
    """
    store = _open_store(work_dir, clock)
    return Journal(store, compact, failed=failed, durable=durable, clock=clock)


def _open_store(work_dir: str, clock: Clock) -> Store:
    # A file:// URL is a directory too, where SQLite makes commits durable: fsspec never syncs.
    if not is_url(work_dir) or work_dir.startswith(("file://", "local://")):
        from stoker.service.journal.sqlite_store import SqliteStore

        return SqliteStore(work_dir.partition("://")[2] or work_dir)
    from stoker.service.journal.object_store import ObjectStore

    return ObjectStore(work_dir, clock)
