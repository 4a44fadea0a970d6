"""Folders: locks, atomic files, and the same behavior for local paths and URLs."""

import os
from pathlib import Path

import fsspec
import pytest

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


def test_a_lock_file_removed_under_its_holder_is_created_again(path):
    first, second = Folder(path), Folder(path)
    assert first.lock()
    lock = Path(path, "stoker.lock")
    lock.unlink()
    assert second.lock()
    assert lock.exists()
    first.unlock()
    second.unlock()


def test_a_folder_removed_while_it_is_locked_is_created_again(path, monkeypatch):
    """The holder of the lock removes file and folder between the calls of the next."""
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


def test_unnamed_files_can_be_read_but_not_found(path):
    folder = UnnamedFolder(path)
    assert folder.lock()
    file = folder.create("a")
    file.write(b"data")
    folder.commit(file)
    with folder.open("a") as one, folder.open("a") as other:
        assert os.pread(one.fileno(), 9, 0) == os.pread(other.fileno(), 9, 0) == b"data"
    assert list(Path(path).parent.iterdir()) == []
    assert folder.read("b") is None
    folder.publish("b", b"more")
    assert folder.read("b") == b"more"
    del folder
    assert file.closed
