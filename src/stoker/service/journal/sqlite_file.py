"""Opens and creates the database of a journal, and closes one without a change to its files."""

import sqlite3
import struct
from pathlib import Path

from stoker.errors import FailedPreconditionError
from stoker.service.journal.blocks import VERSION, damaged, newer

PAGE_BYTES = 4096
_APPLICATION_ID = 0x73746B6A  # "stkj"
_HEADER_BYTES = 100
_LOG_LIMIT = 16 << 20

_TABLES = ("units", "parts", "head")


def check_header(path: Path) -> bool:
    """Return whether the file at `path` is a database of a journal; False if it is to be created.

    Reads bytes only: SQLite might change another program's database when it opens it.

    Raises:
        FailedPreconditionError: if it is of another program or of a newer stoker.
        DataLossError: if it is damaged.
    """
    if not path.exists():
        return False
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header:
        return False
    if len(header) < _HEADER_BYTES or not header.startswith(b"SQLite format 3\0"):
        raise _foreign(path)
    version, _, application_id = struct.unpack_from(">3I", header, 60)
    if application_id != _APPLICATION_ID:
        raise _foreign(path)
    if version > VERSION:
        raise newer(str(path), version)
    if version == 0 or header[18:20] not in (b"\1\1", b"\2\2"):
        raise damaged(str(path), "the numbers of versions in its header are wrong")
    return True


def open_database(path: Path, *, exists: bool) -> sqlite3.Connection:
    """Return a connection that has locked the database, and has changed nothing.

    Args:
        path: the file.
        exists: as returned by `check_header`.
    """
    connection = sqlite3.connect(
        path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=16
    )
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchone()
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA journal_size_limit={_LOG_LIMIT}").fetchone()
        if not exists:  # these take effect before anything else, and would write to another file
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("ROLLBACK")
    except BaseException:
        close_unchanged(connection)
        raise
    return connection


def create(connection: sqlite3.Connection, head: bytes) -> bool:
    """Write an empty journal; return False if another process has just done so."""
    connection.execute("BEGIN EXCLUSIVE")
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
        connection.execute("ROLLBACK")
        return False
    connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={VERSION}")
    for table in _TABLES:
        connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, content BLOB NOT NULL)")
    connection.execute("INSERT INTO head VALUES (0, ?)", (head,))
    connection.execute("COMMIT")
    return True


def close_unchanged(connection: sqlite3.Connection) -> None:
    """Close a connection that has written nothing, without copying its log to the database.

    SQLite does not copy after an interrupt. Its option for this needs Python 3.12.
    """
    connection.interrupt()
    connection.close()


def _foreign(path: Path) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{path} is not a journal of stoker; name another `work_dir`, or move the file away"
    )
