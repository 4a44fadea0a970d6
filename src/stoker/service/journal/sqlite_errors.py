"""Errors of SQLite and of the system as errors of stoker that say what to do."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.errors import (
    FailedPreconditionError,
    InvalidConfigError,
    PermissionDeniedError,
    StokerError,
    UnavailableError,
)
from stoker.service.journal.blocks import damaged

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN}
# SQLITE_ERROR: such as a table that is missing.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_NOT_LOCKABLE = {errno.ENOLCK, errno.EOPNOTSUPP}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the system as errors of stoker that name `path`."""
    try:
        yield
    except StokerError:  # some are OSErrors, too
        raise
    except UnicodeDecodeError as error:  # a message of SQLite that quotes a damaged name
        raise damaged(str(path), "its schema cannot be read") from error
    except (sqlite3.Error, OSError) as error:
        raise _translate(error, path) from error


def busy(path: Path) -> FailedPreconditionError:
    """Return the error for a journal that is open elsewhere."""
    return FailedPreconditionError(
        f"another dispatcher serves `work_dir` {path.parent}, or another program has opened "
        f"{path.name} there; stop it, or name another `work_dir`"
    )


def _translate(error: sqlite3.Error | OSError, path: Path) -> StokerError:
    reason = getattr(error, "strerror", None) or str(error)
    code = getattr(error, "sqlite_errorcode", -1) & 0xFF
    number = getattr(error, "errno", 0)
    if code in _LOCKED or isinstance(error, BlockingIOError):
        return busy(path)
    if code in _READ_ONLY or isinstance(error, PermissionError) or number == errno.EROFS:
        return PermissionDeniedError(
            f"the journal {path} cannot be written: {reason}; permit the dispatcher to write in "
            "`work_dir`, or name another"
        )
    if code in _DAMAGED:
        return damaged(str(path), reason)
    if number in _NOT_LOCKABLE or "lock" in getattr(error, "sqlite_errorname", "").lower():
        return InvalidConfigError(
            f"{path} cannot be locked ({reason}), as on some network file systems; name a "
            "`work_dir` on a local disk, or a URL of an object store"
        )
    return UnavailableError(
        f"the journal {path} cannot be written or read: {reason}; check the disk and its free "
        "space, and start the dispatcher again, which then knows all that it ever told"
    )
