"""Opening files: local ones, URLs by fsspec, gzip and zlib, all seen through a window of bytes."""

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
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)

# With 1 KB records larger blocks are read no faster, and 64 KiB ones 1.25 times as slow.
BLOCK_BYTES = 1 << 18
_COMPRESSED_BYTES = 1 << 16

# The containers that zlib reads, by the names that tf.data gave them.
_WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}


def checked_compression(value: str | None) -> str:
    """The argument `compression_type` as `open_window` takes it: ``""`` for none.

    Raises:
        InvalidArgumentError: it is none.
    """
    compression = "" if value is None else value
    if compression not in ("", *_WINDOW_BITS):
        raise InvalidArgumentError(
            f"`compression_type` must be None, '', 'GZIP' or 'ZLIB'; got {value!r}"
        )
    return compression


class Window(ABC):
    """A file's content, uncompressed, through a block of its bytes that moves forward.

    Attributes:
        path: of the file.
        offset: where in the content `block` begins.
        block: the bytes.
        size: of the content, where that is known without reading it.
    """

    def __init__(self, path: str, size: int | None) -> None:
        self.path = path
        self.offset = 0
        self.block = b""
        self.size = size

    @abstractmethod
    def move(self, at: int, need: int, want: int | None = None) -> bytes:
        """Moves the block forward by `at` bytes, also beyond its end; returns it.

        It then holds at least `need` bytes, fewer only at the end of the content. Moved beyond
        that, it is empty and `offset` is where the content ends.

        Args:
            at: bytes to move by.
            need: bytes to hold.
            want: about how many bytes to read at once; ``None``: BLOCK_BYTES.

        Raises:
            DataLossError: the compressed data is corrupt, or the file has become shorter.
            UnavailableError: the file cannot be read.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes the file; idempotent."""


def open_window(path: str, compression: str) -> Window:
    """Opens a file to be read.

    Args:
        path: of a local file, or a URL with ``://``, opened by fsspec.
        compression: as of `checked_compression`.

    Raises:
        NotFoundError: there is no such file.
        PermissionDeniedError: it may not be read.
        InvalidArgumentError: it is a folder, or the URL has an unknown protocol.
        FailedPreconditionError: the package that reads such URLs is not installed.
        UnavailableError: it cannot be opened for another reason.
    """
    with _named(path):
        if not is_url(path) and not compression:
            return _LocalWindow(path)
        file = open_file(path, "rb")
        if compression:
            return _StreamWindow(path, None, _Inflated(path, file, _WINDOW_BITS[compression]))
        return _StreamWindow(path, getattr(file, "size", None), _Plain(file))


def open_to_write(path: str) -> Any:
    """Opens a file to be written anew: a binary file object.

    Raises:
        NotFoundError: its folder does not exist.
        PermissionDeniedError: it may not be written.
        InvalidArgumentError: it is a folder, or the URL has an unknown protocol.
        FailedPreconditionError: the package that writes such URLs is not installed.
        UnavailableError: it cannot be opened for another reason.
    """
    try:
        with _named(path):
            return open_file(path, "wb", buffering=-1)
    except NotFoundError as error:
        raise NotFoundError(
            f"{path} cannot be written: its folder does not exist; make it, or correct the path"
        ) from error.__cause__


def compressor(compression: str) -> Any:
    """What compresses a file as `open_window` reads it; `None` without compression."""
    if not compression:
        return None
    return zlib.compressobj(wbits=_WINDOW_BITS[compression])


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Names the file in what the system raises."""
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


class _LocalWindow(Window):
    """An uncompressed local file: every block is read where it begins, so that none is copied."""

    def __init__(self, path: str) -> None:
        self._file = open_file(path, "rb")
        super().__init__(path, os.fstat(self._file.fileno()).st_size)

    def move(self, at: int, need: int, want: int | None = None) -> bytes:
        assert self.size is not None
        if not at and len(self.block) >= need:
            return self.block
        want = BLOCK_BYTES if want is None else want
        self.offset = min(self.offset + at, self.size)
        rest = self.size - self.offset
        with _named(self.path):
            block = os.pread(self._file.fileno(), min(max(need, want), rest), self.offset)
            while len(block) < min(need, rest):
                more = os.pread(self._file.fileno(), need - len(block), self.offset + len(block))
                if not more:
                    raise DataLossError(
                        f"{self.path} is truncated: it had {self.size} bytes when it was opened, "
                        f"and now ends after {self.offset + len(block)}"
                    )
                block += more
        self.block = block
        return block

    def close(self) -> None:
        self._file.close()


class _StreamWindow(Window):
    """What can only be read forward; it is always read in pieces of the same size.

    So an error in compressed data stands behind the same byte however the records are read.
    """

    def __init__(self, path: str, size: int | None, stream: "_Plain | _Inflated") -> None:
        super().__init__(path, size)
        self._stream = stream

    def move(self, at: int, need: int, want: int | None = None) -> bytes:
        if not at and len(self.block) >= need:
            return self.block
        with _named(self.path):
            beyond = at - len(self.block)
            parts = [self.block[at:]]
            self.offset += min(at, len(self.block))
            self.block = b""
            if beyond > 0:
                parts = [self._pass(beyond)]
            held = len(parts[0])
            while held < need and (piece := self._stream.read()):
                parts.append(piece)
                held += len(piece)
        self.block = b"".join(parts)
        return self.block

    def _pass(self, count: int) -> bytes:
        """Passes `count` bytes; returns what was read behind them."""
        passed = self._stream.skip(count)
        self.offset += passed
        count -= passed
        while count > 0:
            piece = self._stream.read()
            if not piece:
                break
            self.offset += min(count, len(piece))
            if len(piece) > count:
                return piece[count:]
            count -= len(piece)
        return b""

    def close(self) -> None:
        self._stream.close()


class _Plain:
    """An uncompressed file object."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self) -> bytes:
        """The next piece; empty at the end."""
        piece: bytes = self._file.read(BLOCK_BYTES)
        return piece

    def skip(self, count: int) -> int:
        """Passes bytes without reading them; returns how many: the rest is to be read."""
        size = getattr(self._file, "size", None)
        if size is None or not self._file.seekable():
            return 0
        here = self._file.tell()
        there = min(here + count, size)
        self._file.seek(there)
        return int(there - here)

    def close(self) -> None:
        self._file.close()


class _Inflated:
    """A gzip or zlib file, of one member or several, checked by zlib to its end."""

    def __init__(self, path: str, file: Any, window_bits: int) -> None:
        self._path = path
        self._file = file
        self._window_bits = window_bits
        self._member: Any = None
        self._input = b""
        self._offset = 0

    def read(self) -> bytes:
        """The next piece; empty at the end.

        Raises:
            DataLossError: the data is corrupt or ends too early; what stands before is read first.
        """
        while True:
            first = self._offset == 0
            if not self._input:
                self._input = self._file.read(_COMPRESSED_BYTES)
                self._offset += len(self._input)
                if not self._input:
                    return self._end()
            if self._member is None:
                if not first:  # some tools pad with zeros, and no member begins with one
                    self._input = self._input.lstrip(b"\0")
                    if not self._input:
                        continue
                self._member = zlib.decompressobj(self._window_bits)
            if piece := self._inflate():
                return piece

    def _inflate(self) -> bytes:
        try:
            piece: bytes = self._member.decompress(self._input, BLOCK_BYTES)
        except zlib.error as error:
            raise DataLossError(
                f"{self._path} is corrupt, or not compressed as said: {error}, between its bytes "
                f"{self._offset - len(self._input)} and {self._offset}"
            ) from error
        if self._member.eof:
            self._input = self._member.unused_data
            self._member = None
        else:
            self._input = self._member.unconsumed_tail
        return piece

    def _end(self) -> bytes:
        if self._member is None:
            return b""
        rest = self._inflate()  # what zlib itself still held
        if rest or self._member is None:
            return rest
        raise DataLossError(
            f"{self._path} is truncated: its compressed data goes on behind byte {self._offset}, "
            "where the file ends; write it anew"
        )

    def skip(self, count: int) -> int:
        """Nothing can be passed without being read."""
        return 0

    def close(self) -> None:
        self._file.close()
