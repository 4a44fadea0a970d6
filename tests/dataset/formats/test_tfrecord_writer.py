"""Writing TFRecord files."""

import errno
from pathlib import Path
from typing import Any

import fsspec
import pytest

import stoker
from stoker import Dataset
from stoker.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from tests.dataset.verbs import tape


@pytest.mark.parametrize("compression", [None, "", "GZIP", "ZLIB"])
def test_flushed_records_are_readable_before_close(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "a"
    with stoker.TFRecordWriter(path, compression) as writer:
        writer.write(b"one")
        writer.write(bytearray(b"two"))
        writer.flush()
        assert list(Dataset.tfrecords(path, compression).take(2)) == [b"one", b"two"]
        writer.write(memoryview(b"three"))
    assert list(Dataset.tfrecords(path, compression)) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_urls_are_written_by_fsspec(compression: str) -> None:
    with stoker.TFRecordWriter("memory://written", compression) as writer:
        writer.write(b"one")
    try:
        assert list(Dataset.tfrecords("memory://written", compression)) == [b"one"]
    finally:
        fsspec.filesystem("memory").rm("/written")


def test_file_is_replaced_and_closed_with_the_block(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"something else, and longer than what is written")
    writer = stoker.TFRecordWriter(path)

    def write_and_fail() -> None:
        with writer:
            writer.write(b"one")
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    assert list(Dataset.tfrecords(path)) == [b"one"]
    writer.close()
    for use in (lambda: writer.write(b"two"), writer.flush):
        with pytest.raises(FailedPreconditionError, match=r"the writer of .*a is closed"):
            use()


class FullDisk:
    """A file on a disk with `room` bytes left."""

    closed = False

    def __init__(self, file: Any, room: int) -> None:
        self.file = file
        self.room = room

    def write(self, data: bytes) -> int:
        fits = data[: self.room]
        self.room -= len(fits)
        self.file.write(fits)
        if len(fits) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(data)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.closed = True
        self.file.close()


@pytest.mark.parametrize("compression", ["", "ZLIB"])
def test_partly_written_record_is_an_error_and_ends_the_file(
    tmp_path: Path, compression: str
) -> None:
    path = tmp_path / "a"
    writer = stoker.TFRecordWriter(path, compression)
    writer.write(b"first")
    writer.flush()
    opened: Any = writer
    opened._file = FullDisk(opened._file, 14)
    if compression:  # compressed data is buffered until flush
        writer.write(bytes(range(200)))
    with pytest.raises(OSError, match="No space left"):
        writer.flush() if compression else writer.write(bytes(range(200)))
    with pytest.raises(FailedPreconditionError, match=r"an earlier write to .*a failed"):
        writer.write(b"third")
    writer.close()
    first, error = tape(Dataset.tfrecords(path, compression))
    assert first == b"first"
    assert error[1] == DataLossError.__name__


def test_invalid_arguments_raise(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"`compression_type` must be .* got 'BZIP2'"):
        stoker.TFRecordWriter(tmp_path / "a", "BZIP2")
    with pytest.raises(NotFoundError, match="none/a cannot be written: its folder does not"):
        stoker.TFRecordWriter(tmp_path / "none" / "a")
    with stoker.TFRecordWriter(tmp_path / "a") as writer:
        for invalid in ("text", 5, None):
            with pytest.raises(InvalidArgumentError, match=r"must be bytes; .*\.encode\(\)"):
                writer.write(invalid)  # type: ignore[arg-type]
