"""A journal in a local directory: its lock, its refusals, and damage anywhere in its files."""

import errno
import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidConfigError,
    PermissionDeniedError,
    StokerError,
    UnavailableError,
)
from stoker.service.journal.blocks import VERSION
from tests.service.journal.processes import (
    Child,
    fork_and_collect,
    fork_and_wait,
    hold,
    start_server,
)
from tests.service.journal.recording import OpenJournal, keep_last, opened

LOGGED = 8
"""Commits in the log of `killed_files`."""


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server()


def test_a_second_dispatcher_is_refused(tmp_path):
    with opened(tmp_path) as journal:
        for path in (tmp_path, tmp_path / "x" / ".."):
            with pytest.raises(
                FailedPreconditionError, match="another dispatcher serves"
            ) as caught:
                OpenJournal(path)
            assert "name another `work_dir`" in str(caught.value)
        journal.commit(b"unit")
    with opened(tmp_path) as journal:
        assert journal.content == [b"unit"]


def test_the_lock_holds_after_a_refusal(tmp_path):
    """Closing a descriptor of the database would release SQLite's locks of the process."""
    with opened(tmp_path):
        with pytest.raises(FailedPreconditionError):
            OpenJournal(tmp_path)
        other = Child(hold, str(tmp_path))
        assert "another dispatcher serves" in str(other.receive())
        other.close()


def test_one_of_many_dispatchers_that_start_at_once_serves(tmp_path):
    for attempt in range(10):
        work_dir = tmp_path / str(attempt)
        children = [Child(hold, str(work_dir)) for _ in range(4)]
        answers = [str(child.receive()) for child in children]
        for child in children:
            child.close()
        assert answers.count("held") == 1, answers
        assert sum("another dispatcher serves" in answer for answer in answers) == 3, answers
        with opened(work_dir) as journal:
            assert journal.content == []


def test_the_lock_is_released_when_the_process_is_killed(tmp_path):
    child = Child(hold, str(tmp_path))
    assert child.receive() == "held"
    with pytest.raises(FailedPreconditionError, match="another dispatcher"):
        OpenJournal(tmp_path)
    child.close()
    with opened(tmp_path):
        pass


def test_no_shared_memory_file_is_used(tmp_path):
    with opened(tmp_path) as journal:
        journal.commit(b"unit")
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "journal.lock",
            "journal.sqlite",
            "journal.sqlite-wal",
        ]


def test_file_urls_are_local_directories(tmp_path):
    with opened(f"file://{tmp_path}/work") as journal:
        journal.commit(b"unit")
    assert (tmp_path / "work" / "journal.sqlite").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"some text", b"x" * 5_000, b"SQLite format 3\0" + bytes(200)],
    ids=["empty", "short", "long", "empty header"],
)
def test_a_foreign_file_is_refused_unchanged(tmp_path, content):
    (tmp_path / "journal.sqlite").write_bytes(content)
    with refused_unchanged(tmp_path, FailedPreconditionError, "is not a journal of stoker"):
        OpenJournal(tmp_path)


def test_a_foreign_database_is_refused_unchanged(tmp_path):
    live = tmp_path / "live"
    live.mkdir()
    connection = sqlite3.connect(live / "journal.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE units (id INTEGER PRIMARY KEY, content BLOB)")
    copy = tmp_path / "copy"
    shutil.copytree(live, copy)  # with a log, as after a crash
    connection.close()
    with refused_unchanged(copy, FailedPreconditionError, "is not a journal of stoker"):
        OpenJournal(copy)


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_another_version_is_refused_unchanged(tmp_path, version):
    with opened(tmp_path) as journal:
        journal.commit(b"unit")
    connection = sqlite3.connect(tmp_path / "journal.sqlite")
    connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    expected = f"has version {version} .* the stoker that wrote it"
    with refused_unchanged(tmp_path, FailedPreconditionError, expected):
        OpenJournal(tmp_path)


def test_an_interrupted_creation_leaves_no_journal(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(UnavailableError, match="No space left"):
            OpenJournal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["journal.lock"]
    with opened(tmp_path) as journal:
        assert journal.content == []


def test_a_work_dir_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidConfigError, match=f"{tmp_path}/file is not a directory"):
        OpenJournal(tmp_path / "file")


def test_a_full_disk_is_no_wrong_work_dir(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(UnavailableError, match="No space left"):
        OpenJournal(tmp_path / "new")


def test_a_read_only_file_system_is_named(tmp_path):
    with opened(tmp_path / "work") as journal:
        journal.commit(b"unit")
    with mounted(tmp_path, "--bind", "-o", "ro"):
        for name in ("work", "new"):
            with pytest.raises(PermissionDeniedError, match=r"cannot be written.*permit"):
                OpenJournal(tmp_path / name)
    with opened(tmp_path / "work") as journal:
        assert journal.content == [b"unit"]


def test_a_full_disk_fails_and_loses_nothing_reported(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, "-t", "tmpfs", "-o", "size=4m"):
        with opened(disk / "work") as journal:
            for _ in range(100):
                journal.append(b"x" * 100_000)
            error = journal.wait_failed()
            assert isinstance(error, UnavailableError)
            assert "full" in str(error)
            assert "free" in str(error)
            durable = journal.journal.durable_position
        with opened(disk / "work") as journal:
            assert len(journal.content) >= durable
            assert set(journal.content) <= {b"x" * 100_000}
        (disk / "filler").write_bytes(b"")


def test_a_removed_file_fails(tmp_path):
    with opened(tmp_path / "work") as journal:
        journal.commit(b"unit")
        shutil.rmtree(tmp_path / "work")
        journal.append(b"lost")
        assert "No such file" in str(journal.wait_failed())
    assert journal.reported == [1]


def test_a_replaced_file_fails(tmp_path):
    with opened(tmp_path) as journal:
        journal.commit(b"unit")
        shutil.copy(tmp_path / "journal.sqlite", tmp_path / "copy")
        (tmp_path / "copy").rename(tmp_path / "journal.sqlite")
        journal.append(b"lost")
        assert "replaced by another file" in str(journal.wait_failed())


def test_an_error_of_fsync_fails(tmp_path, monkeypatch):
    with opened(tmp_path) as journal:
        journal.commit(b"unit")
        store = journal.store

        class Broken:
            def execute(self, sql, *args):
                if sql == "COMMIT":
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                    raise error
                return connection.execute(sql, *args)

            def close(self):
                connection.close()

        connection = store._connection
        store._connection = Broken()
        journal.append(b"lost")
        assert isinstance(journal.wait_failed(), UnavailableError)
    with opened(tmp_path) as journal:
        assert journal.content == [b"unit"]


def test_a_forked_child_changes_nothing(tmp_path):
    """When its copy of the connection is collected, SQLite would delete the parent's log."""
    parent = Child(fork_and_collect, str(tmp_path))
    assert parent.receive() == ["journal.lock", "journal.sqlite", "journal.sqlite-wal"]
    assert parent.receive() is None
    parent.close()
    with opened(tmp_path) as journal:
        assert journal.content == [b"before", b"after"]


def test_a_forked_child_does_not_hold_the_lock(tmp_path):
    parent = Child(fork_and_wait, str(tmp_path))
    grandchild = parent.receive()
    parent.kill()
    try:
        with opened(tmp_path) as journal:
            assert journal.content == [b"unit"]
    finally:
        os.kill(grandchild, signal.SIGKILL)
        parent.close()


@pytest.fixture(scope="module")
def closed_files(tmp_path_factory) -> tuple[Path, list[bytes]]:
    """Return the folder and content of a journal with a snapshot, closed."""
    folder = tmp_path_factory.mktemp("closed")
    fill(folder)
    with opened(folder) as journal:
        return folder, journal.content


@pytest.fixture(scope="module")
def killed_files(tmp_path_factory) -> tuple[Path, list[bytes]]:
    """Return the same of a journal whose process was killed: half is in the log."""
    folder = tmp_path_factory.mktemp("killed")
    fill(folder)
    with opened(folder) as journal:
        for number in range(LOGGED):
            journal.commit(b"log %d" % number * 300)
        copy = tmp_path_factory.mktemp("copies") / "copy"
        shutil.copytree(folder, copy)
    return copy, [*journal.content, *(b"log %d" % number * 300 for number in range(LOGGED))]


def ends(content: list[bytes]) -> list[list[bytes]]:
    """Return `content` without 0 to `LOGGED` of its last commits."""
    return [content[: len(content) - lost] for lost in range(LOGGED + 1)]


def fill(folder: Path) -> None:
    with opened(folder, keep_last) as journal:
        journal.commit(*(b"old" * 40 for _ in range(20)))
        journal.commit(b"%05000d" % 1)
        store = journal.store
        store.compact(lambda history: keep_last(history.snapshot, history.units))
        for number in range(6):
            journal.commit(*(b"%d unit" % number * 50 for _ in range(number)))


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_changed_byte_is_an_error_or_harmless(closed_files, tmp_path_factory, data):
    folder, content = closed_files
    size = (folder / "journal.sqlite").stat().st_size
    at = data.draw(st.integers(0, size - 1))
    mask = data.draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 255]))
    assert read_changed(folder, "journal.sqlite", at, mask, tmp_path_factory) in ("error", content)


def test_each_changed_byte_of_the_header_is_an_error_or_harmless(closed_files, tmp_path_factory):
    folder, content = closed_files
    for at in range(100):
        for mask in (1, 2, 255):
            found = read_changed(folder, "journal.sqlite", at, mask, tmp_path_factory)
            assert found in ("error", content), at


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_changed_byte_of_the_log_loses_only_the_last_commit(killed_files, tmp_path_factory, data):
    """SQLite takes it for the end of the log: the commits before it are the journal."""
    folder, content = killed_files
    name = data.draw(st.sampled_from(["journal.sqlite", "journal.sqlite-wal"]))
    at = data.draw(st.integers(0, (folder / name).stat().st_size - 1))
    mask = data.draw(st.sampled_from([1, 16, 128, 255]))
    found = read_changed(folder, name, at, mask, tmp_path_factory)
    assert found in ("error", *ends(content))


def test_most_changed_bytes_of_the_log_are_errors(killed_files, tmp_path_factory):
    """SQLite discards what follows the changed byte; the peers of the dispatcher notice that."""
    folder, content = killed_files
    size = (folder / "journal.sqlite-wal").stat().st_size
    found = [
        read_changed(folder, "journal.sqlite-wal", at, 255, tmp_path_factory)
        for at in range(0, size, size // 40)
    ]
    lost = [[each == end for end in ends(content)].index(True) for each in found]
    assert lost == sorted(lost, reverse=True)
    assert lost[0] == LOGGED
    assert found.count(content) < 5


def test_a_damaged_journal_is_refused_unchanged(closed_files, tmp_path):
    shutil.copytree(closed_files[0], tmp_path, dirs_exist_ok=True)
    change(tmp_path / "journal.sqlite", b"5 unit", b"5 uniT")
    with refused_unchanged(tmp_path, DataLossError, "its checksum differs"), opened(tmp_path):
        pass


def test_a_damaged_journal_with_a_log_is_refused_unchanged(killed_files, tmp_path):
    shutil.copytree(killed_files[0], tmp_path, dirs_exist_ok=True)
    change(tmp_path / "journal.sqlite", b"0" * 500, b"0" * 499 + b"x")  # in the snapshot
    for _ in range(2):  # SQLite adds the log to the file, which is as damaged as before
        with pytest.raises(DataLossError, match="its checksum differs"), opened(tmp_path):
            pass


def test_a_damaged_log_is_refused_unchanged(killed_files, tmp_path):
    """SQLite discards it: it is as if nothing of it had been committed."""
    folder, content = killed_files
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    change(tmp_path / "journal.sqlite-wal", b"log 0", b"log 1")
    with opened(tmp_path) as journal:
        assert journal.content == content[:-LOGGED]
        journal.commit(b"next")
    with opened(tmp_path) as journal:
        assert journal.content == [*content[:-LOGGED], b"next"]


def test_a_row_without_content_is_an_error(closed_files, tmp_path):
    folder, _ = closed_files
    for table in ("units", "parts"):
        shutil.rmtree(tmp_path)
        shutil.copytree(folder, tmp_path)
        connection = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
        connection.execute(f"CREATE TABLE copy AS SELECT * FROM {table}")
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, content BLOB)")
        connection.execute(f"INSERT INTO {table} SELECT id, NULL FROM copy")
        connection.close()
        with (
            refused_unchanged(tmp_path, DataLossError, f"row .* of {table} has no content"),
            opened(tmp_path),
        ):
            pass


@pytest.mark.parametrize("size", [0, 32, 10_000], ids=["empty", "short", "long"])
def test_a_log_without_its_database_is_an_error(killed_files, tmp_path, size):
    log = (killed_files[0] / "journal.sqlite-wal").read_bytes()
    (tmp_path / "journal.sqlite-wal").write_bytes(log[:size])
    with refused_unchanged(tmp_path, DataLossError, r"the file is missing, .*journal\.sqlite-wal"):
        OpenJournal(tmp_path)


def test_a_missing_block_is_an_error(closed_files, tmp_path):
    folder, _ = closed_files
    for table, select in (("units", "max(id)"), ("units", "max(id) - 1"), ("parts", "max(id)")):
        shutil.rmtree(tmp_path)
        shutil.copytree(folder, tmp_path)
        connection = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
        connection.execute(f"DELETE FROM {table} WHERE id = (SELECT {select} FROM {table})")
        connection.close()
        with pytest.raises(DataLossError, match="is damaged"), opened(tmp_path):
            pass


def change(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def read_changed(folder: Path, name: str, at: int, mask: int, factory) -> object:
    """Return the content of a copy with one byte changed, or "error".

    An error changes no file, but for a log, which SQLite adds to the database.
    """
    copy = factory.mktemp("changed") / "copy"
    shutil.copytree(folder, copy)
    data = bytearray((copy / name).read_bytes())
    data[at] ^= mask
    (copy / name).write_bytes(data)
    before = digest(copy)
    try:
        with opened(copy) as journal:
            return journal.content
    except (DataLossError, FailedPreconditionError, PermissionDeniedError) as error:
        unchanged = "journal.sqlite-wal" in before or digest(copy) == before
        return "error" if str(copy) in str(error) and unchanged else error
    finally:
        shutil.rmtree(copy)


def digest(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "journal.lock"
    }


class refused_unchanged:  # noqa: N801 - used as a function
    """Expect an error, and the same files as before."""

    def __init__(self, folder: Path, error: type[StokerError], match: str) -> None:
        self._folder = folder
        self._raises = pytest.raises(error, match=match)

    def __enter__(self) -> None:
        self._before = digest(self._folder)
        self._caught = self._raises.__enter__()

    def __exit__(self, *exception) -> bool:
        suppressed = self._raises.__exit__(*exception)
        assert str(self._folder) in str(self._caught.value)
        assert digest(self._folder) == self._before
        return bool(suppressed)


class mounted:  # noqa: N801 - used as a function
    """Mount something on a folder; skip the test where that is not permitted."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options

    def __enter__(self) -> None:
        source = self._folder if "--bind" in self._options else "tmpfs"
        command = ["mount", *self._options, str(source), str(self._folder)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("this process may not mount file systems")

    def __exit__(self, *exception) -> None:
        subprocess.run(["umount", str(self._folder)], check=True)
