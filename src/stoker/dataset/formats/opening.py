"""Opens local files and URLs, compressed or not, for reading through a buffer of bytes."""

import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stoker.dataset.formats.storage import is_url, open_file
from stoker.errors import (
    DataLossError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)

# With records of 1 KB, larger blocks are no faster, and blocks of 64 KiB are 1.25 times slower.
BLOCK_BYTES = 1 << 18
_COMPRESSED_BYTES = 1 << 16

# The compressions by their names in tf.data, with the containers that zlib reads and writes.
WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}


def checked_compression(value: Any) -> str:
    """Return the argument `compression_type` with ``""`` for none.

    Raises:
        InvalidTypeError: if the value is neither a str nor None.
        InvalidArgumentError: if the value is not None, ``""``, ``"GZIP"`` or ``"ZLIB"``.
    """
    compression = "" if value is None else value
    if compression not in ("", *WINDOW_BITS):
        error = InvalidArgumentError if isinstance(compression, str) else InvalidTypeError
        raise error(f"`compression_type` must be None, '', 'GZIP' or 'ZLIB'; got {value!r}")
    return str(compression)


class FileBuffer(ABC):
    """A block of a file's uncompressed content that moves forward.

    Attributes:
        path: the file's path.
        offset: the offset of `block` in the content.
        block: the bytes.
        size: the size of the content, if known without reading the content.
    """

    def __init__(self, path: str, size: int | None) -> None:
        self.path = path
        self.offset = 0
        self.block = b""
        self.size = size

    def limit(self, stop: int) -> None:
        """End the content at byte `stop` of an uncompressed file; called before `move`."""
        self.size = stop

    @abstractmethod
    def move(self, at: int, need: int, want: int | None = None) -> bytes:
        """Move the block forward by `at` bytes, perhaps beyond its end, and return the block.

        The block then has at least `need` bytes, fewer only at the end of the content. Beyond the
        content, the block is empty and `offset` is the end of the content.

        Args:
            at: the number of bytes to move by.
            need: the least number of bytes in the block.
            want: about the number of bytes to read in a call, at most BLOCK_BYTES; ``None``:
                BLOCK_BYTES.

        Raises:
            DataLossError: if the compressed data is corrupt, or the file has become shorter.
            UnavailableError: if the file cannot be read.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the file; idempotent."""


def open_buffer(path: str, compression: str) -> FileBuffer:
    """Open a file for reading.

    Args:
        path: a local path, or a URL with ``://``, opened by fsspec.
        compression: ``""``, ``"GZIP"`` or ``"ZLIB"``.

    Raises:
        NotFoundError: if the file does not exist.
        PermissionDeniedError: if the file may not be read.
        InvalidArgumentError: if it is a folder, or fsspec does not know the URL's protocol.
        FailedPreconditionError: if the package for such URLs is not installed.
        UnavailableError: if it cannot be opened for another reason.
    """
    with _named(path):
        if not is_url(path) and not compression:
            return _LocalBuffer(path)
        file = open_file(path, "rb")
        if compression:
            file = _Inflated(path, file, WINDOW_BITS[compression])
        return _StreamBuffer(path, file)


def open_to_write(path: str) -> Any:
    """Open a file for writing, which truncates it; return a binary file object.

    Raises:
        NotFoundError: if the file's folder does not exist.
        PermissionDeniedError: if the file may not be written.
        InvalidArgumentError: if it is a folder, or fsspec does not know the URL's protocol.
        FailedPreconditionError: if the package for such URLs is not installed.
        UnavailableError: if it cannot be opened for another reason.
    """
    try:
        with _named(path):
            return open_file(path, "wb", buffering=-1)
    except NotFoundError as error:
        raise NotFoundError(
            f"{path} cannot be written: its folder does not exist; create it, or correct the path"
        ) from error.__cause__


def compressor(compression: str) -> Any:
    """Return the zlib object that compresses a file; None without compression."""
    if not compression:
        return None
    return zlib.compressobj(wbits=WINDOW_BITS[compression])


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Raise the errors of the system as errors of stoker that name the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{path} does not exist; check the path, and that the file is there on the machine "
            "that reads it"
        ) from error
    except PermissionError as error:
        raise PermissionDeniedError(f"{path} may not be opened: {error}") from error
    except IsADirectoryError as error:
        raise InvalidArgumentError(
            f"{path} is a folder; name files, as in Dataset.list_files({path + '/*'!r})"
        ) from error
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error}") from error


class _LocalBuffer(FileBuffer):
    """An uncompressed local file: each block is read at its offset, without copies."""

    def __init__(self, path: str) -> None:
        self._file = open_file(path, "rb")
        super().__init__(path, os.fstat(self._file.fileno()).st_size)
        self._opened_size = self.size

    def move(self, at: int, need: int, want: int | None = None) -> bytes:
        assert self.size is not None
        if not at and len(self.block) >= need:
            return self.block
        want = BLOCK_BYTES if want is None else min(want, BLOCK_BYTES)
        self.offset = min(self.offset + at, self.size)
        rest = self.size - self.offset
        with _named(self.path):
            block = os.pread(self._file.fileno(), min(max(need, want), rest), self.offset)
            # A read may return fewer bytes than it asks for, and returns none after the end.
            while len(block) < min(need, rest):
                more = os.pread(self._file.fileno(), need - len(block), self.offset + len(block))
                if not more:
                    raise DataLossError(
                        f"{self.path} is truncated: it had {self._opened_size} bytes when it was "
                        f"opened, and now ends after {self.offset + len(block)}"
                    )
                block += more
        self.block = block
        return block

    def close(self) -> None:
        self._file.close()


class _StreamBuffer(FileBuffer):
    """A file that can only be read forward, in pieces of equal size.

    An error in compressed data is found at the same byte however its records are read.
    """

    def __init__(self, path: str, file: Any) -> None:
        size = getattr(file, "size", None)
        super().__init__(path, size if isinstance(size, int) else None)
        self._file = file

    def move(self, at: int, need: int, want: int | None = None) -> bytes:
        if not at and len(self.block) >= need:
            return self.block
        with _named(self.path):
            beyond = at - len(self.block)
            parts = [self.block[at:]]
            self.offset += min(at, len(self.block))
            self.block = b""
            if beyond > 0:
                parts = [self._skip(beyond)]
            size = len(parts[0])
            while size < need and (piece := self._read()):
                parts.append(piece)
                size += len(piece)
        self.block = b"".join(parts)
        return self.block

    def _read(self) -> bytes:
        """Return the next piece; empty at the end of the content."""
        size = BLOCK_BYTES
        if self.size is not None:  # `limit` may have moved the end of the content
            size = max(0, min(size, self.size - self._file.tell()))
        piece: bytes = self._file.read(size)
        return piece

    def _skip(self, count: int) -> bytes:
        """Skip `count` bytes; return the bytes read next."""
        if self.size is not None and self._file.seekable():
            # The bytes that are skipped are not requested from an object store.
            start = self._file.tell()
            self._file.seek(min(start + count, self.size))
            self.offset += self._file.tell() - start
            return b""
        while count > 0 and (piece := self._read()):
            self.offset += min(count, len(piece))
            if len(piece) > count:
                return piece[count:]
            count -= len(piece)
        return b""

    def close(self) -> None:
        self._file.close()


class _Inflated:
    """The uncompressed content of a gzip or zlib file, as a file that is read forward."""

    def __init__(self, path: str, file: Any, window_bits: int) -> None:
        self._file = file
        self._pieces = filter(None, _inflate(path, file, window_bits))

    def read(self, size: int) -> bytes:
        """Return the next piece, of at most BLOCK_BYTES for any `size`; empty at the end."""
        return next(self._pieces, b"")

    def close(self) -> None:
        self._file.close()


def _inflate(path: str, file: Any, window_bits: int) -> Iterator[bytes]:
    """Yield the content of a file of one member or several, checked by zlib to its end.

    Raises:
        DataLossError: if the data is corrupt or truncated; the data before it is yielded first.
    """
    member: Any = None
    offset, is_first, ended = 0, True, False
    while not ended:
        data = file.read(_COMPRESSED_BYTES)
        ended = not data
        offset += len(data)
        # At the end of the file, zlib may still buffer output of the last member.
        while data or (ended and member is not None):
            if member is None:
                # Some tools pad with zeros, and no member begins with a zero.
                if not is_first and not (data := data.lstrip(b"\0")):
                    break
                member, is_first = zlib.decompressobj(window_bits), False
            try:
                piece = member.decompress(data, BLOCK_BYTES)
            except zlib.error as error:
                raise DataLossError(
                    f"{path} is corrupt, or not compressed as given: {error}, between its bytes "
                    f"{offset - len(data)} and {offset}"
                ) from error
            if ended and not piece and not member.eof:
                raise DataLossError(
                    f"{path} is truncated: its compressed data continues after byte {offset}, "
                    "where the file ends; write it anew"
                )
            yield piece
            data = member.unused_data if member.eof else member.unconsumed_tail
            member = None if member.eof else member
