"""A journal in a local directory: one SQLite database.

The write-ahead log with `synchronous=FULL` makes a commit one fdatasync. What SQLite discards when
it reads a damaged log was not committed, or is noticed by the positions that peers bring.
"""

import ctypes
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from stoker.service.journal.blocks import (
    BlockKind,
    JournalBlock,
    damaged,
    decode_block,
    pack,
    parts_of,
    units_of,
)
from stoker.service.journal.sqlite_errors import translated
from stoker.service.journal.sqlite_file import PAGE_BYTES, lock, make_directory, open_database
from stoker.service.journal.store import COMPACTION_BYTES, JournalHistory, Rewrite, Store

FILE_NAME = "journal.sqlite"
LOCK_NAME = "journal.lock"

_TABLES = ("units", "parts", "head")
_PART_BYTES = 1 << 20
"""A block of a snapshot; commits wait while one is written, for about 10 ms."""
_DELETED_ROWS = 1_000
_STEP_PAGES = 256


class _Head(msgspec.Struct, frozen=True):
    """Describes the blocks of the database, in one row that every transaction replaces.

    Attributes:
        last: number of the last block of units, and position of its last unit.
        covered: the same of the last block that the snapshot replaces.
        unit_bytes: size of the blocks of units behind the snapshot.
        generation: number of the snapshot; 0 if there is none.
        part_blocks: number of blocks of the snapshot.
        snapshot_bytes: their size.
    """

    last: tuple[int, int] = (0, 0)
    covered: tuple[int, int] = (0, 0)
    unit_bytes: int = 0
    generation: int = 0
    part_blocks: int = 0
    snapshot_bytes: int = 0


class SqliteStore(Store):
    """Keeps a journal in the file ``journal.sqlite`` of a directory, locked by ``journal.lock``.

    Commits and the steps of a compaction use one connection under a lock.
    """

    def __init__(self, work_dir: str) -> None:
        self._path = Path(work_dir) / FILE_NAME
        self._boot = os.urandom(8)
        self._lock = threading.Lock()
        with translated(self._path):
            make_directory(self._path.parent)
            self._locked = lock(self._path.with_name(LOCK_NAME))
            try:
                self._open()
            except BaseException:
                self._locked.close()
                raise
        self.position = self._head.last[1]

    def _open(self) -> None:
        self._connection = open_database(self._path, _TABLES, self._encoded(_Head()))
        try:
            (block,) = self._blocks("head", 0, 0)
            self._head = msgspec.msgpack.decode(block.items[0], type=_Head)
            self._inode = self._path.stat().st_ino
        except BaseException:
            self._connection.close()
            raise

    def read(self) -> JournalHistory:
        return self._history(self._head)

    def write(self, units: list[bytes]) -> None:
        number, position = self._head.last
        data = JournalBlock(BlockKind.UNITS, self._boot, number + 1, position + 1, units).encode()
        with translated(self._path), self._lock:
            # A file that was renamed away still takes commits, which a restart would not find.
            self.check()
            last = (number + 1, position + len(units))
            head = msgspec.structs.replace(
                self._head, last=last, unit_bytes=self._head.unit_bytes + len(data)
            )
            with self._transaction():
                self._connection.execute("INSERT INTO units VALUES (?, ?)", (number + 1, data))
                self._write_head(head)
            self._head = head
        self.position = last[1]

    def check(self) -> None:
        with translated(self._path):
            if self._path.stat().st_ino != self._inode:
                raise OSError("it was replaced by another file while it was open")

    def compaction_due(self) -> bool:
        head = self._head
        return head.unit_bytes > max(COMPACTION_BYTES, head.snapshot_bytes)

    def compact(self, rewrite: Rewrite) -> None:
        with translated(self._path):
            self._delete_unused()
            try:
                self._replace(rewrite)
            finally:
                self._delete_unused()

    def close(self) -> None:
        # The lock is released last: another dispatcher must not open a database that is in use.
        with suppress(sqlite3.Error):  # what was reported durable is in the log
            self._connection.close()
        self._locked.close()

    def abandon(self) -> None:
        # An immortal connection is never closed: SQLite would delete the parent's log.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._locked.close()  # the lock is still the parent's

    def _replace(self, rewrite: Rewrite) -> None:
        head = self._head
        generation = head.generation + 1
        count = size = 0
        for parts in pack(rewrite(self._history(head)), _PART_BYTES):
            data = JournalBlock(BlockKind.PARTS, self._boot, count, 0, parts).encode()
            # A transaction for each block: commits wait for one block, not for the whole snapshot.
            with self._lock, self._transaction():
                row = (_part_id(generation, count), data)
                self._connection.execute("INSERT INTO parts VALUES (?, ?)", row)
            count += 1
            size += len(data)
        with self._lock:
            new = msgspec.structs.replace(
                self._head,
                covered=head.last,
                unit_bytes=self._head.unit_bytes - head.unit_bytes,
                generation=generation,
                part_blocks=count,
                snapshot_bytes=size,
            )
            with self._transaction():
                self._write_head(new)
            self._head = new

    def _delete_unused(self) -> None:
        """Delete what the last snapshot replaces and what an interrupted one has left."""
        head = self._head
        current = _part_id(head.generation, 0), _part_id(head.generation + 1, 0)
        self._delete("units", "id <= ?", head.covered[0])
        self._delete("parts", "id < ?", current[0])
        self._delete("parts", "id >= ?", current[1])
        self._return_space()

    def _return_space(self) -> None:
        """Shorten the file, but for the pages that the units up to the next snapshot need."""
        with self._lock:
            (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        unused = free - 2 * COMPACTION_BYTES // PAGE_BYTES
        for _ in range(unused // _STEP_PAGES):
            with self._lock:
                # `execute` ends this pragma after its first page.
                self._connection.executescript(f"PRAGMA incremental_vacuum({_STEP_PAGES})")

    def _delete(self, table: str, condition: str, bound: int) -> None:
        rows = f"SELECT id FROM {table} WHERE {condition} LIMIT {_DELETED_ROWS}"
        count = 1
        while count:
            # Commits run between two steps, each of which takes the lock for `_DELETED_ROWS`.
            with self._lock:
                deleted = f"DELETE FROM {table} WHERE id IN ({rows})"
                count = self._connection.execute(deleted, (bound,)).rowcount

    def _history(self, head: _Head) -> JournalHistory:
        name = str(self._path)
        first = _part_id(head.generation, 0)
        parts = self._blocks("parts", first, first + head.part_blocks - 1)
        units = self._blocks("units", head.covered[0] + 1, head.last[0])
        return JournalHistory(
            parts_of(parts, name, head.part_blocks),
            units_of(units, name, head.covered, head.last),
        )

    def _blocks(self, table: str, first: int, last: int) -> Iterator[JournalBlock]:
        """Yield the blocks of the rows `first` to `last`; a commit may run between two of them."""
        select = f"SELECT content FROM {table} WHERE id = ?"
        for number in range(first, last + 1):
            with translated(self._path), self._lock:
                row = self._connection.execute(select, (number,)).fetchone()
            if row is None or not isinstance(row[0], bytes):
                raise damaged(str(self._path), f"row {number} of {table} has no content")
            yield decode_block(row[0], str(self._path))

    def _write_head(self, head: _Head) -> None:
        self._connection.execute("UPDATE head SET content = ?", (self._encoded(head),))

    def _encoded(self, head: _Head) -> bytes:
        content = [msgspec.msgpack.encode(head)]
        return JournalBlock(BlockKind.HEAD, self._boot, 0, 0, content).encode()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # SQLite has rolled back already after some errors, such as a full disk.
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise


def _part_id(generation: int, number: int) -> int:
    return (generation << 32) + number
