"""Open, create and lock the database of a journal, and close it without a change to its files."""

import errno
import fcntl
import os
import random
import sqlite3
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from stoker.errors import InvalidConfigError
from stoker.service.journal.blocks import VERSION, damaged, newer
from stoker.service.journal.sqlite_errors import busy, check_writable
from stoker.service.journal.wal import check_log

PAGE_BYTES = 4096
_APPLICATION_ID = 0x73746B6A  # "stkj"
_HEADER_BYTES = 100
_LOG_LIMIT = 16 << 20
_LOCK_SECONDS = 0.5
"""Two processes that start together may both be refused by SQLite, so each tries for a while."""
_LOCK_START, _LOCK_BYTES = 1 << 30, 512  # https://sqlite.org/fileformat2.html#the_lock_byte_page

_IMPOSSIBLE = {errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
"""Errors of a path that can name no new directory, however often it is tried."""

_TABLES = ("units", "parts", "head")


def check_files(path: Path) -> bool:
    """Return whether there is a database of a journal at `path`; False if nothing is there.

    Reads bytes only: SQLite might change another program's database when it opens it, and removes
    a log that it cannot read.

    Raises:
        FailedPreconditionError: if it is of another program or of a newer stoker
            (InvalidConfigError), or in use.
        DataLossError: if it is damaged, or missing beside its log.
    """
    log = path.with_name(f"{path.name}-wal")
    if not path.exists():
        if log.exists():
            raise damaged(str(path), f"the file is missing, and its log {log.name} is there")
        return False
    check_writable(path)
    with path.open("r+b") as file:
        _lock(file, path)
        _check_header(file.read(_HEADER_BYTES), path)
        check_log(log)
    return True


def _lock(file: IO[bytes], path: Path) -> None:
    """Lock a database as SQLite does, until `file` is closed."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_START)
        except (BlockingIOError, PermissionError) as error:
            if time.monotonic() > deadline:
                raise busy(path) from error
            time.sleep(random.SystemRandom().uniform(0.01, 0.05))
        else:
            return


def _check_header(header: bytes, path: Path) -> None:
    if len(header) < _HEADER_BYTES or not header.startswith(b"SQLite format 3\0"):
        raise _foreign(path)
    version, _, application_id = struct.unpack_from(">3I", header, 60)
    if application_id != _APPLICATION_ID:
        raise _foreign(path)
    if version > VERSION:
        raise newer(str(path), version)
    if version == 0 or header[18:20] != b"\2\2":
        raise damaged(str(path), "the numbers of versions in its header are wrong")


def create(path: Path, head: bytes) -> None:
    """Create an empty journal at `path` in one step, unless something exists there."""
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    try:
        connection = sqlite3.connect(part, isolation_level=None)
        try:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={VERSION}")
            for table in _TABLES:
                columns = "id INTEGER PRIMARY KEY, content BLOB NOT NULL"
                connection.execute(f"CREATE TABLE {table} ({columns})")
            connection.execute("INSERT INTO head VALUES (0, ?)", (head,))
            # Without shared memory, which some file systems do not have.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchone()
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal":
                raise sqlite3.OperationalError(f"its journal_mode is {mode!r} and cannot be 'wal'")
        finally:
            connection.close()
        with suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)
    sync_directory(path.parent)


def open_database(path: Path) -> sqlite3.Connection:
    """Return a connection that has locked the database, and has changed nothing."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=16
        )
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchone()
            connection.execute("PRAGMA cell_size_check=ON")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA journal_size_limit={_LOG_LIMIT}").fetchone()
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except BaseException as error:
            close_unchanged(connection)
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.SystemRandom().uniform(0.01, 0.05))
        else:
            return connection


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
        sync_directory(created.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def close_unchanged(connection: sqlite3.Connection) -> None:
    """Close a connection that has written nothing, without copying its log to the database.

    SQLite does not copy after an interrupt. Its option for this needs Python 3.12.
    """
    connection.interrupt()
    connection.close()


def _foreign(path: Path) -> InvalidConfigError:
    return InvalidConfigError(
        f"{path} is not a journal of stoker; name another `work_dir`, or move the file away"
    )
