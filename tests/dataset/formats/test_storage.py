"""Folders: locks, atomic files, and the same behavior for local paths and URLs."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pytest

from stoker.dataset.formats import elements_file
from stoker.dataset.formats.elements_file import ElementsFile, ElementsWriter
from stoker.dataset.formats.storage import Folder, UnnamedFolder, folder_at


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "a" / "folder")


def test_a_locked_folder_cannot_be_locked_again(path):
    first, second = Folder(path), Folder(path)
    assert first.lock()
    assert not second.lock()
    first.unlock()
    first.unlock()
    assert second.lock()
    second.unlock()


def test_an_empty_folder_is_removed_when_it_is_unlocked(path):
    folder = Folder(path)
    for name in (None, "kept"):
        assert folder.lock()
        if name:
            folder.publish(name, b"data")
        folder.unlock()
        assert Path(path).exists() == bool(name)
    assert [file.name for file in Path(path).iterdir()] == ["kept"]


def test_a_removed_lock_file_is_created_again(path):
    first, second = Folder(path), Folder(path)
    assert first.lock()
    lock = Path(path, "stoker.lock")
    lock.unlink()
    assert second.lock()
    assert lock.exists()
    first.unlock()
    second.unlock()


def test_a_removed_folder_is_created_again(path, monkeypatch):
    """The holder removes lock and folder between two system calls of another `lock`."""
    folder = Folder(path)
    real = os.stat
    removed: list[str] = []

    def removes(name, **kwargs):
        if not removed and str(name).endswith("stoker.lock"):
            removed.append(name)
            Path(name).unlink()
            Path(path).rmdir()
        return real(name, **kwargs)

    monkeypatch.setattr(os, "stat", removes)
    assert folder.lock()
    assert removed
    folder.unlock()


def test_a_failed_publish_leaves_the_earlier_file(path, monkeypatch):
    folder = Folder(path)
    assert folder.lock()
    folder.publish("a", b"one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            folder.publish("a", b"two")
    folder.unlock()
    assert [file.name for file in Path(path).iterdir()] == ["a"]
    assert folder.read("a") == b"one"


@pytest.mark.parametrize("url", [False, True])
def test_files_are_created_published_and_removed(path, url):
    folder = folder_at("memory://bucket/folder" if url else path)
    assert folder.read("a") is None
    assert folder.lock()
    for data in (b"one", b"two"):
        folder.publish("a", data)
        assert folder.read("a") == data
    file = folder.create("b")
    file.write(b"three")
    folder.commit(file)
    assert folder.read("b") == b"three"
    folder.remove(["a", "b", "c"])
    assert folder.read("a") is folder.read("b") is None
    folder.unlock()
    if url:
        fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_unnamed_files_are_not_in_the_file_system(path):
    folder = UnnamedFolder(path)
    assert folder.lock()
    file = folder.create("a")
    file.write(b"data")
    folder.commit(file)
    assert list(Path(path).parent.iterdir()) == []
    with folder.open("a") as again:
        assert os.pread(again.fileno(), 9, 0) == b"data"
    assert folder.read("b") is None
    folder.publish("b", b"more")
    assert folder.read("b") == b"more"
    del folder
    assert file.closed


def test_readers_of_one_unnamed_file_do_not_disturb_each_other(path, monkeypatch):
    monkeypatch.setattr(elements_file, "RECORD_ELEMENTS", 1000)
    folder = UnnamedFolder(path)
    assert folder.lock()
    writer = ElementsWriter(folder.create("a"))
    writer.add([np.arange(9) for _ in range(20_000)])
    writer.finish()

    def read() -> int:
        file = ElementsFile(folder.open("a"), "a")
        found = sum(len(file.read(record)) for record in range(len(file.firsts) - 1))
        file.close()
        return found

    with ThreadPoolExecutor(4) as pool:
        assert [future.result() for future in [pool.submit(read) for _ in range(8)]] == [20_000] * 8
