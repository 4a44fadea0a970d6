"""Lock, create and open the database of a journal."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

from stoker.errors import InvalidConfigError
from stoker.service.journal.blocks import VERSION, damaged, other_version

PAGE_BYTES = 4096
_APPLICATION_ID = 0x73746B6A  # "stkj"
_LOG_LIMIT = 16 << 20

_IMPOSSIBLE = {errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
"""Errors of a path that can name no new directory, however often it is tried."""


def lock(path: Path) -> IO[bytes]:
    """Lock the file at `path`, and return it; the lock lasts until it is closed.

    The kernel releases the lock when the process ends. Over NFS, Linux asks the server for it.

    Raises:
        BlockingIOError: if another dispatcher has locked it, in this process or another.
    """
    file = path.open("ab")
    try:
        # The kernel releases the lock of a file of our own when the process ends, also by SIGKILL.
        # (docs/decisions/012)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def open_database(path: Path, tables: Sequence[str], head: bytes) -> sqlite3.Connection:
    """Return a connection to the database at `path`, which is created if there is none.

    Raises:
        InvalidConfigError: if another program, or another version of stoker, wrote it.
        DataLossError: if it is missing beside its log.
    """
    log = path.with_name(f"{path.name}-wal")
    if path.exists():
        path.open("r+b").close()  # SQLite would open a file that it cannot write for reading
        _check_origin(path, log)
    elif log.exists():  # SQLite would apply it to the new database
        raise damaged(str(path), f"the file is missing, and its log {log.name} is there")
    else:
        _create(path, tables, head)
    connection = sqlite3.connect(path, timeout=0.5, isolation_level=None, check_same_thread=False)
    try:
        # Then the log needs no shared memory, which some file systems do not have.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchone()
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA journal_size_limit={_LOG_LIMIT}").fetchone()
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise sqlite3.OperationalError(f"its journal_mode is {mode!r} and cannot be 'wal'")
    except BaseException:
        connection.close()
        raise
    return connection


# Damage is an error, and nothing is written before the check. (docs/decisions/013)
def _check_origin(path: Path, log: Path) -> None:
    """Check who wrote a database, without a change to another program's files."""
    uri = f"{path.absolute().as_uri()}?immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_CORRUPT and log.exists():
            return  # a full disk ended a checkpoint: the file is complete only with its log
        application_id = None
    if application_id != _APPLICATION_ID:
        raise InvalidConfigError(
            f"{path} is not a journal of stoker; name another `work_dir`, or move the file away"
        )
    if version != VERSION:
        raise other_version(str(path), version)


def _create(path: Path, tables: Sequence[str], head: bytes) -> None:
    """Create an empty journal under another name, and rename it when it is complete."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(part, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={VERSION}")
            for table in tables:
                columns = "id INTEGER PRIMARY KEY, content BLOB NOT NULL"
                connection.execute(f"CREATE TABLE {table} ({columns})")
            connection.execute("INSERT INTO head VALUES (0, ?)", (head,))
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    _sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Create a directory, durably.

    Raises:
        InvalidConfigError: if no directory can have this path.
    """
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in _IMPOSSIBLE:
            raise
        reason = f"{error.filename} is not a directory" if path.exists() else error.strerror
        raise InvalidConfigError(
            f"`work_dir` {path} cannot be created: {reason}; name a directory that exists or can "
            "be created, or a URL of an object store"
        ) from error
    for created in missing:
        _sync_directory(created.parent)


def _sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
