"""Opening files: URLs, compression, and errors."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import stoker
from stoker import Dataset
from stoker.dataset.formats import opening
from stoker.dataset.formats.opening import open_buffer
from stoker.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    StokerError,
    UnavailableError,
)
from tests.dataset.verbs import check_verbs, tape

CONTENT = bytes(range(200))


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def sources(folder: Path, memory: Any) -> Iterator[tuple[str, str]]:
    """Yield paths and compressions of files with the same content."""
    compressed = {
        "": CONTENT,
        "GZIP": gzip.compress(CONTENT[:70]) + gzip.compress(b"") + gzip.compress(CONTENT[70:]),
        "ZLIB": zlib.compress(CONTENT),
    }
    for compression, data in compressed.items():
        (folder / f"file{compression}").write_bytes(data)
        memory.pipe(f"/file{compression}", data)
        yield str(folder / f"file{compression}"), compression
        yield f"memory://file{compression}", compression
        yield f"file://{folder}/file{compression}", compression


def test_a_buffer_moves_over_any_file_alike(tmp_path: Path, memory: Any, blocks) -> None:
    for path, compression in sources(tmp_path, memory):
        buffer = open_buffer(path, compression)
        at = 0
        for step, need in [(0, 1), (0, 40), (3, 10), (30, 1), (0, 60), (90, 0), (7, 5), (20, 300)]:
            block = buffer.move(step, need)
            at += step
            assert buffer.offset == at
            assert block == buffer.block == CONTENT[at : at + len(block)]
            assert len(block) >= min(need, len(CONTENT) - at)
        assert buffer.move(1000, 5) == b""
        assert buffer.offset == len(CONTENT)
        assert buffer.move(0, 5) == b""
        buffer.close()
        buffer.close()


def test_urls_are_read_by_fsspec(memory: Any) -> None:
    memory.pipe("/deep/a.txt", b"one\ntwo\n")
    memory.pipe("/deep/b.gz", gzip.compress(b"three"))
    assert check_verbs(lambda: Dataset.text_lines("memory://deep/a.txt")) == ["one", "two"]
    assert check_verbs(lambda: Dataset.text_lines("memory://deep/b.gz", "GZIP")) == ["three"]
    paths = Dataset.list_files("memory://deep/*.txt")
    assert list(Dataset.text_lines(paths)) == ["one", "two"]


def test_several_members_and_padding_are_one_file(tmp_path: Path, blocks) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(
        gzip.compress(b"a\nb\n")
        + bytes(40)
        + gzip.compress(b"")
        + gzip.compress(b"c\nd")
        + bytes(9)
    )
    assert check_verbs(lambda: Dataset.text_lines(path, "GZIP")) == ["a", "b", "c", "d"]


def test_bytes_after_a_gzip_member_are_an_error(tmp_path: Path, blocks) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"a\nb\n") + b"junk after the data")
    found = check_verbs(lambda: Dataset.text_lines(path, "GZIP"))
    assert found[-1][1] == "DataLossError"
    assert found[:-1] == ["a", "b"]


def test_data_that_is_not_compressed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("plain text")
    for compression in ("GZIP", "ZLIB"):
        with pytest.raises(DataLossError, match=r"a.txt is corrupt, or not compressed as given"):
            list(Dataset.text_lines(path, compression))


def test_a_decompression_bomb_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    buffer = open_buffer(str(path), "GZIP")
    assert len(buffer.move(0, 1)) <= 2 * opening.BLOCK_BYTES
    buffer.close()


@pytest.mark.parametrize(
    ("path", "error", "match"),
    [
        ("{}/none", NotFoundError, "none does not exist; check the path"),
        ("memory://none", NotFoundError, "memory://none does not exist"),
        ("{}", InvalidArgumentError, "is a folder; name files"),
        ("no-such-protocol://x", InvalidArgumentError, "no-such-protocol://x cannot be opened"),
        ("{}/loop", UnavailableError, "loop cannot be read"),
    ],
)
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_an_open_that_fails_is_one_error_with_the_path(
    tmp_path: Path, path: str, error: type[StokerError], match: str, compression: str
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    path = path.format(tmp_path)
    with pytest.raises(error, match=match):
        next(iter(Dataset.text_lines(path, compression)))
    [found] = check_verbs(lambda: Dataset.text_lines(path, compression))
    assert found[1] == error.__name__


def test_a_file_without_permission_is_an_error(tmp_path: Path, monkeypatch) -> None:
    def refuse(path: str, mode: str, buffering: int = 0) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(opening, "open_file", refuse)  # root may read anything
    with pytest.raises(PermissionDeniedError, match="secret may not be opened"):
        next(iter(Dataset.text_lines(tmp_path / "secret")))


def test_a_missing_package_for_a_url_is_named(monkeypatch) -> None:
    def refuse(url: str) -> Any:
        raise ImportError("Please install gcsfs to access Google Storage")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(FailedPreconditionError, match=r"gs://b/a needs .* install gcsfs"):
        next(iter(Dataset.text_lines("gs://b/a")))


def test_a_failed_read_ends_its_file(tmp_path: Path, monkeypatch, blocks) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n" * 50)
    real = os.pread

    def broken(descriptor: int, count: int, offset: int) -> bytes:
        if offset >= 32:
            raise OSError(5, "Input/output error")
        return real(descriptor, min(count, 32 - offset), offset)

    monkeypatch.setattr(os, "pread", broken)
    found = tape(Dataset.text_lines([path, path]))
    assert found[:8] == ["one", "two"] * 4
    assert found[8][1] == "UnavailableError"
    assert found[9:] == found[:9]


SHRINKING: dict[str, Callable[[Path], Dataset]] = {
    "text": Dataset.text_lines,
    "csv": lambda path: Dataset.csv(path, [str, str]),
    "fixed length": lambda path: Dataset.fixed_length_records(path, 4),
    "tfrecord": Dataset.tfrecords,
}


@pytest.mark.parametrize("left", [0, 80, 83])
@pytest.mark.parametrize("kind", SHRINKING)
def test_a_file_that_shrinks_while_it_is_read_is_an_error(
    tmp_path: Path, kind: str, left: int, blocks
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a,b\n" * 100_000)
    if kind == "tfrecord":
        with stoker.TFRecordWriter(path) as writer:
            for _ in range(20_000):
                writer.write(b"four")
    with SHRINKING[kind](path).iterator() as iterator:
        next(iterator)
        path.write_bytes(path.read_bytes()[:left])
        with pytest.raises(DataLossError, match=r"a is truncated: it had 400000 bytes when it was"):
            list(iterator)
