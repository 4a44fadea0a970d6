"""Errors of SQLite as errors of stoker that say what to do."""

import errno
import os
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
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the system as errors of stoker that name `path`."""
    try:
        yield
    except StokerError:  # some are OSErrors, too
        raise
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except UnicodeDecodeError as error:  # a message of SQLite that quotes a damaged name
        raise damaged(str(path), "its schema cannot be read") from error
    except OSError as error:
        raise _system_error(error, path) from error


def check_writable(path: Path) -> None:
    """Raise PermissionDeniedError if SQLite cannot write `path` and files beside it.

    SQLite opens such a database for reading, and then its lock fails with another error.
    """
    for needed in (path.parent, path):
        if needed.exists() and not os.access(needed, os.W_OK):
            raise _read_only(path, f"{needed} is read-only for this process")


def busy(path: Path) -> FailedPreconditionError:
    """Return the error for a journal that is open elsewhere."""
    return FailedPreconditionError(
        f"another dispatcher serves `work_dir` {path.parent}, or another program has opened "
        f"{path.name} there; stop it, or name another `work_dir`"
    )


def _system_error(error: OSError, path: Path) -> StokerError:
    reason = error.strerror or str(error)
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return _read_only(path, reason)
    if error.errno in {errno.ENOLCK, errno.EOPNOTSUPP}:
        return _not_lockable(path, reason)
    return _unavailable(path, reason)


def _translate(error: sqlite3.Error, path: Path) -> StokerError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _LOCKED:
        return busy(path)
    if code in _READ_ONLY:
        return _read_only(path, str(error))
    if code in _DAMAGED:
        return damaged(str(path), str(error))
    if code == sqlite3.SQLITE_IOERR and "lock" in getattr(error, "sqlite_errorname", "").lower():
        return _not_lockable(path, str(error))
    if code == sqlite3.SQLITE_ERROR:  # such as a table that is missing
        return damaged(str(path), str(error))
    return _unavailable(path, str(error))


def _not_lockable(path: Path, reason: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"{path} cannot be locked ({reason}), as on some network file systems; name a `work_dir` "
        "on a local disk, or a URL of an object store"
    )


def _read_only(path: Path, reason: str) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"the journal {path} cannot be written: {reason}; permit the dispatcher to write in "
        "`work_dir`, or name another"
    )


def _unavailable(path: Path, reason: str) -> UnavailableError:
    return UnavailableError(
        f"the journal {path} cannot be written or read: {reason}; check the disk and its free "
        "space, and start the dispatcher again, which then knows all that it ever told"
    )
