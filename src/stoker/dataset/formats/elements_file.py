"""Element files: elements in chunks with a checksum each, and an index at the end.

    file   = head, chunks, index, footer
    head   = magic, length and checksum, then a msgpack `Header`
    chunk  = body, column, trailer: as a frame of the wire, described by what stands behind it
    index  = where each chunk begins, then the number of its first element; int64, one more than
             there are chunks
    footer = where the index begins, chunks, checksum of the index, checksum of the footer, magic

Every byte is under a checksum. The index comes last: a file that was not finished has no footer,
and cannot be taken for a whole one. Any element is found in O(log chunks), and reading takes
memory for the index (16 bytes a chunk) and one chunk.
"""

import os
import struct
import threading
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from stoker.elements.codec.columns import Column
from stoker.elements.codec.elements import TypeResolver, decode_elements, encode_elements
from stoker.elements.codec.layout import Buffer, empty_body
from stoker.elements.ragged import RaggedArray
from stoker.elements.sizes import element_bytes
from stoker.elements.sparse import SparseArray
from stoker.elements.structure import field_names, make_dataclass_instance, map_structure
from stoker.errors import DataLossError, FailedPreconditionError, WireError

VERSION = 1
CHUNK_BYTES = 1 << 20
"""A chunk is written when it holds so much: decoding it takes about a millisecond."""
CHUNK_ELEMENTS = 8192

_HEAD = struct.Struct("<8sII")
_TRAILER = struct.Struct("<QQIII")
_FOOTER = struct.Struct("<QQII8s")
_MAGIC = b"stkelem\n"
_END_MAGIC = b"\nstkends"
_INT64 = np.dtype("<i8")

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE_COLUMN: Callable[[Any], Column] = msgspec.msgpack.Decoder(Column).decode

# level 1: on elements that compress at all, higher levels cost five times as much for a tenth less.
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "GZIP": lambda data: zlib.compress(data, level=1, wbits=31),
    "ZLIB": lambda data: zlib.compress(data, level=1),
}
_DECOMPRESS: dict[str, Callable[[Any], bytes]] = {
    "GZIP": lambda data: zlib.decompress(data, wbits=31),
    "ZLIB": zlib.decompress,
}

COMPRESSIONS = tuple(_COMPRESS)
"""The names that `ElementsWriter` takes, besides ``""`` for none."""


class Header(msgspec.Struct, frozen=True):
    """What a file says of itself; `about` tells whose elements these are."""

    version: int
    compression: str = ""
    about: dict[str, str] = {}


class ElementsWriter:
    """Writes an element file.

    Args:
        file: where to; nothing may be held back in the process, where a fork would double it.
        compression: of `COMPRESSIONS`, or ``""``.
        about: for `Header.about`.

    Attributes:
        positions: how many elements were added.
        nbytes: how many bytes were written.
    """

    def __init__(
        self, file: BinaryIO, compression: str = "", about: dict[str, str] | None = None
    ) -> None:
        self.positions = 0
        self.nbytes = 0
        self._file = file
        self._compress = _COMPRESS.get(compression)
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._offsets: list[int] = []
        self._firsts: list[int] = [0]
        header = _ENCODE(Header(VERSION, compression, about or {}))
        checksum = zlib.crc32(header, len(header))
        self._write([_HEAD.pack(_MAGIC, len(header), checksum) + header])

    def add(self, elements: list[Any]) -> None:
        """Adds elements at the end; the caller may change their arrays afterwards.

        Raises:
            InvalidArgumentError: an element cannot be encoded; names the place.
            OSError: of the file.
        """
        self.positions += len(elements)
        if _PLAIN.issuperset(map(type, elements)):
            self._pending += elements
            self._pending_bytes += len(elements) * element_bytes(0)
        else:
            for element in elements:
                self._add_one(element)
        while len(self._pending) >= CHUNK_ELEMENTS or self._pending_bytes >= CHUNK_BYTES:
            self._flush()

    def _add_one(self, element: Any) -> None:
        size = element_bytes(element)
        if self._pending and self._pending_bytes + size > CHUNK_BYTES:
            self._flush()
        if size >= CHUNK_BYTES:
            self._write_chunk([element])  # at once: no copy is needed
            return
        self._pending.append(map_structure(_owned, element))
        self._pending_bytes += size

    def finish(self) -> None:
        """Writes what is still held, and the index: the file is complete."""
        while self._pending:
            self._flush()
        index = np.array([*self._offsets, self.nbytes, *self._firsts], _INT64).tobytes()
        chunks, start = len(self._offsets), self.nbytes
        checksum = zlib.crc32(index)
        own = zlib.crc32(struct.pack("<QQI", start, chunks, checksum))
        self._write([index, _FOOTER.pack(start, chunks, checksum, own, _END_MAGIC)])

    def _flush(self) -> None:
        elements = self._pending[:CHUNK_ELEMENTS]
        self._pending = self._pending[CHUNK_ELEMENTS:]
        self._pending_bytes = sum(map(element_bytes, self._pending))
        self._write_chunk(elements)

    def _write_chunk(self, elements: list[Any]) -> None:
        column, body, size = encode_elements(elements)
        stored = size
        if self._compress is not None:
            body = [self._compress(b"".join(body))]
            stored = len(body[0])
        described = _ENCODE(column)
        checksum = 0
        for piece in (*body, described):
            checksum = zlib.crc32(piece, checksum)
        trailer = (stored, size, len(described), len(elements))
        checksum = zlib.crc32(struct.pack("<QQII", *trailer), checksum)
        offset = self.nbytes
        self._write([*body, described, _TRAILER.pack(*trailer, checksum)])
        self._offsets.append(offset)
        self._firsts.append(self._firsts[-1] + len(elements))

    def _write(self, pieces: list[Buffer]) -> None:
        if sum(map(len, pieces)) <= 4 * CHUNK_BYTES:  # one call for all is worth a copy
            pieces = [b"".join(pieces)]
        for piece in pieces:
            rest = memoryview(piece).cast("B")
            self.nbytes += rest.nbytes
            while rest.nbytes:
                rest = rest[self._file.write(rest) :]


class ElementsFile:
    """Reads an element file.

    Args:
        file: seekable.
        name: of the file, for messages.
        types: finds the classes of namedtuples and dataclasses.
        lock: held while `file` is used, if others use it too.

    Attributes:
        name: as given.
        header: what the file says of itself.
        count: how many elements it holds.

    Raises:
        DataLossError: it is not a complete element file.
        FailedPreconditionError: a newer version of stoker wrote it.
    """

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        types: TypeResolver | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._file = file
        self.name = name
        self._types = types or TypeResolver()
        self._lock = lock or threading.Lock()
        self._shared = lock is not None
        with self._lock:
            self._size = file.seek(0, os.SEEK_END)
        self.header = self._read_head()
        self._offsets, self._firsts = self._read_index()
        self.count = int(self._firsts[-1])

    def chunk_at(self, position: int) -> int:
        """The number of the chunk that holds an element, which there must be."""
        return int(np.searchsorted(self._firsts, position, "right")) - 1

    def bounds(self, chunk: int) -> tuple[int, int]:
        """The numbers of its first element and of the first behind it."""
        return int(self._firsts[chunk]), int(self._firsts[chunk + 1])

    def read(self, chunk: int) -> list[Any]:
        """The elements of a chunk, fresh each time; arrays are writable.

        Raises:
            DataLossError: the chunk is damaged.
        """
        start, end = int(self._offsets[chunk]), int(self._offsets[chunk + 1])
        if end - start < _TRAILER.size:
            raise self._damaged(start, f"a chunk of {end - start} bytes")
        memory = empty_body(end - start)
        self._read_into(start, memory)
        fields = memory[-_TRAILER.size :]
        stored, size, described, count, checksum = _TRAILER.unpack(fields)
        if checksum != zlib.crc32(memory[:-4]):
            raise self._damaged(start, "the checksum of the chunk differs")
        first, stop = self.bounds(chunk)
        if stored + described + _TRAILER.size != end - start or count != stop - first:
            raise self._damaged(start, "the chunk is not the one that the index describes")
        try:
            column = _DECODE_COLUMN(memory[stored : stored + described])
            body: Buffer = memory[:stored]
            if self.header.compression:
                raw = _DECOMPRESS[self.header.compression](body)
                body = empty_body(size)
                body[:] = raw
            return decode_elements(column, count, body, self._types)
        except (WireError, msgspec.MsgspecError, zlib.error, ValueError) as error:
            raise self._damaged(start, str(error)) from error

    def close(self) -> None:
        """Closes the file if nobody else uses it; idempotent."""
        if not self._shared:
            self._file.close()

    def _read_head(self) -> Header:
        head = self._read_exactly(0, _HEAD.size)
        magic, length, checksum = _HEAD.unpack(head)
        if magic != _MAGIC:
            raise self._damaged(0, "it does not begin as an element file does")
        data = self._read_exactly(_HEAD.size, length)
        if zlib.crc32(data, length) != checksum:
            raise self._damaged(0, "the checksum of the head differs")
        try:
            version: int = msgspec.msgpack.decode(data)["version"]
            if version > VERSION:
                raise FailedPreconditionError(
                    f"{self.name} is an element file of version {version}; this stoker reads up "
                    f"to {VERSION}; use a newer stoker, or write the file anew"
                )
            header = msgspec.msgpack.decode(data, type=Header)
        except (msgspec.MsgspecError, TypeError, KeyError) as error:
            raise self._damaged(0, f"the head: {error}") from error
        if header.compression and header.compression not in _DECOMPRESS:
            raise self._damaged(0, f"compression {header.compression!r}")
        return header

    def _read_index(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        at = self._size - _FOOTER.size
        start, chunks, checksum, own, magic = _FOOTER.unpack(self._read_exactly(at, _FOOTER.size))
        if magic != _END_MAGIC:
            raise self._damaged(at, "it ends before its end: the writer did not finish")
        if own != zlib.crc32(struct.pack("<QQI", start, chunks, checksum)):
            raise self._damaged(at, "the checksum of the footer differs")
        length = 2 * (chunks + 1) * _INT64.itemsize
        if start + length != at:
            raise self._damaged(at, f"an index of {length} bytes at {start} does not end here")
        data = self._read_exactly(start, length)
        if zlib.crc32(data) != checksum:
            raise self._damaged(start, "the checksum of the index differs")
        index = np.frombuffer(data, _INT64)
        return index[: chunks + 1], index[chunks + 1 :]

    def _read_exactly(self, offset: int, length: int) -> bytes:
        if offset < 0 or offset + length > self._size:
            raise self._damaged(self._size, "it ends before its end")
        data = bytearray(length)
        self._read_into(offset, memoryview(data))
        return bytes(data)

    def _read_into(self, offset: int, memory: memoryview) -> None:
        with self._lock:
            self._file.seek(offset)
            while memory.nbytes:
                count = self._file.readinto(memory)  # type: ignore[attr-defined]
                if not count:
                    raise self._damaged(self._size, "it ends before its end")
                memory = memory[count:]

    def _damaged(self, offset: int, why: str) -> DataLossError:
        return DataLossError(
            f"{self.name} is damaged at byte {offset}: {why}; delete it and write it anew"
        )


_PLAIN = frozenset({int, float, bool, complex, type(None)})


def _owned(leaf: Any) -> Any:
    """The leaf as it is now, whatever happens to the user's arrays."""
    if isinstance(leaf, np.ndarray):
        return leaf.copy(order="K")
    if isinstance(leaf, RaggedArray | SparseArray):
        cls = type(leaf)
        return make_dataclass_instance(
            cls, [_owned(getattr(leaf, name)) for name in field_names(cls)]
        )
    return leaf
