"""Element files: records of elements with a checksum each, and an index as the last record.

    record  = body, described, trailer: elements are encoded as in a frame of the wire
    trailer = length of the body, length of `described`, elements, CRC-32 of all before
    index   = a record of 0 elements; its body is the offset of each record, then the number of its
              first element, as int64, with a last pair for the end

Every byte is under a checksum, and a file that is incomplete has no index. Any
element is found in O(log records); reading takes memory for the index (16 bytes per record) and
a record.
"""

import io
import os
import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from stoker.dataset.formats.opening import WINDOW_BITS
from stoker.elements.codec.columns import Column
from stoker.elements.codec.elements import TypeResolver, decode_elements, encode_elements
from stoker.elements.codec.layout import Buffer, empty_body
from stoker.elements.frozen import map_arrays
from stoker.elements.sizes import PLAIN_BYTES, PLAIN_TYPES, element_bytes
from stoker.elements.structure import map_structure
from stoker.errors import DataLossError, WireError

# The size at which a record is written: decoding a record takes about a millisecond.
RECORD_BYTES = 1 << 20
RECORD_ELEMENTS = 8192

_TRAILER = struct.Struct("<QIII")
_CHECKSUM_BYTES = 4
_INT64 = np.dtype("<i8")

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE: Callable[[Any], tuple[str, Column]] = msgspec.msgpack.Decoder(tuple[str, Column]).decode

# On elements that compress at all, higher levels cost five times as much for a tenth less.
_COMPRESSION_LEVEL = 1

# Bound once, as `save` adds elements one by one: Python 3.11 makes a method object for each call
# of a method of an imported name, and a function around `copy` takes 2% of the time of `save`.
_are_plain = PLAIN_TYPES.issuperset
_copy_arrays = partial(map_arrays, np.ndarray.__copy__)  # as `copy(order="K")`


class ElementsWriter:
    """Writes an element file.

    Args:
        file: a file without a buffer in this process: a fork would write the buffer twice.
        compression: a name in `WINDOW_BITS`, or ``""``.

    Attributes:
        file: the file.
        nbytes: the number of bytes written.
    """

    def __init__(self, file: BinaryIO, compression: str = "") -> None:
        self.file = file
        self.nbytes = 0
        self._compression = compression
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._offsets: list[int] = []
        self._firsts: list[int] = [0]

    @property
    def count(self) -> int:
        """The number of elements added."""
        return self._firsts[-1] + len(self._pending)

    def add(self, elements: list[Any]) -> None:
        """Append elements; the caller may change their arrays afterwards.

        Raises:
            InvalidArgumentError: if an element cannot be encoded; names the place.
            OSError: if the file cannot be written.
        """
        if _are_plain(map(type, elements)):
            self._pending += elements
            self._pending_bytes += len(elements) * PLAIN_BYTES
        else:
            for element in elements:
                self._add_one(element)
        while len(self._pending) >= RECORD_ELEMENTS or self._pending_bytes >= RECORD_BYTES:
            self._flush()

    def _add_one(self, element: Any) -> None:
        size = element_bytes(element)
        if self._pending and self._pending_bytes + size > RECORD_BYTES:
            self._flush()
        if size >= RECORD_BYTES:
            self._write_elements([element])  # written now, without a copy
            return
        # Copied, because the user may change the arrays later.
        self._pending.append(map_structure(_copy_arrays, element))
        self._pending_bytes += size

    def finish(self) -> None:
        """Write the pending elements and the index, which completes the file."""
        while self._pending:
            self._flush()
        index = np.array([*self._offsets, self.nbytes, *self._firsts], _INT64)
        self._write_record([index.tobytes()], b"", 0)

    def _flush(self) -> None:
        elements = self._pending[:RECORD_ELEMENTS]
        self._pending = self._pending[RECORD_ELEMENTS:]
        self._pending_bytes = sum(map(element_bytes, self._pending))
        self._write_elements(elements)

    def _write_elements(self, elements: list[Any]) -> None:
        column, body, _ = encode_elements(elements)
        if self._compression:
            window_bits = WINDOW_BITS[self._compression]
            body = [zlib.compress(b"".join(body), _COMPRESSION_LEVEL, window_bits)]
        offset = self.nbytes
        self._write_record(body, _ENCODE((self._compression, column)), len(elements))
        self._offsets.append(offset)
        self._firsts.append(self._firsts[-1] + len(elements))

    def _write_record(self, body: list[Buffer], described: bytes, count: int) -> None:
        size = sum(map(len, body))
        trailer = _TRAILER.pack(size, len(described), count, 0)[:-_CHECKSUM_BYTES]
        pieces = [*body, described, trailer]
        checksum = 0
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
        self._write([*pieces, checksum.to_bytes(_CHECKSUM_BYTES, "little")])

    def _write(self, pieces: list[Buffer]) -> None:
        if sum(map(len, pieces)) <= 4 * RECORD_BYTES:  # one system call is worth a copy
            pieces = [b"".join(pieces)]
        for piece in pieces:
            rest = memoryview(piece).cast("B")
            self.nbytes += rest.nbytes
            while rest.nbytes:
                rest = rest[self.file.write(rest) :]


class ElementsFile:
    """Reads an element file.

    Args:
        file: seekable; closed by `close`, and if the constructor raises.
        name: the file's name in messages.
        types: finds the classes of namedtuples and dataclasses.

    Attributes:
        firsts: the position of each record's first element, and the number of elements.
        count: the number of elements.

    Raises:
        DataLossError: if the file is not a complete element file.
    """

    def __init__(self, file: BinaryIO, name: str, types: TypeResolver | None = None) -> None:
        self._file = file
        self._name = name
        self._types = types or TypeResolver()
        try:
            self._size = file.seek(0, os.SEEK_END)
            offsets, firsts = self._read_index()
        except BaseException:
            file.close()
            raise
        self._offsets: npt.NDArray[np.int64] = offsets
        self.firsts: npt.NDArray[np.int64] = firsts
        self.count = int(firsts[-1])

    def record_at(self, position: int) -> int:
        """Return the number of the record that holds the element at `position`."""
        return int(np.searchsorted(self.firsts, position, "right")) - 1

    def read(self, record: int) -> list[Any]:
        """Return the elements of a record, decoded anew each time; arrays are writable.

        Raises:
            DataLossError: if the record is damaged.
        """
        start, end = self._offsets[record : record + 2].tolist()
        first, stop = self.firsts[record : record + 2].tolist()
        body, described = self._read_record(start, end, stop - first)
        try:
            compression, column = _DECODE(described)
            if compression:
                body = zlib.decompress(body, WINDOW_BITS[compression])
            return decode_elements(column, stop - first, body, self._types)
        except (WireError, msgspec.MsgspecError, zlib.error, KeyError) as error:
            raise self._damaged(start, str(error)) from error

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()

    def _read_index(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        at = self._size - _TRAILER.size
        size, described, _, _ = _TRAILER.unpack(self._read(at, self._size))
        start = at - described - size
        index = np.frombuffer(self._read_record(start, self._size, 0)[0], _INT64)
        half = len(index) // 2
        if index[half - 1] != start:
            raise self._damaged(start, "the index belongs to another place")
        return index[:half], index[half:]

    def _read_record(self, start: int, end: int, count: int) -> tuple[Buffer, Buffer]:
        """Return the checked body and description of a record."""
        memory = self._read(start, end)
        size, described, stored_count, checksum = _TRAILER.unpack(memory[-_TRAILER.size :])
        if checksum != zlib.crc32(memory[:-_CHECKSUM_BYTES]):
            raise self._damaged(start, "the checksum of the record differs, or the file is cut off")
        if (size + described + _TRAILER.size, stored_count) != (end - start, count):
            raise self._damaged(start, "the record is not the one in the index")
        return memory[:size], memory[size : -_TRAILER.size]

    def _read(self, start: int, end: int) -> memoryview:
        if start < 0 or end > self._size or end - start < _TRAILER.size:
            raise self._damaged(self._size, "the file is cut off")
        memory = rest = empty_body(end - start)
        while rest.nbytes:
            count = self._read_into(end - rest.nbytes, rest)
            if not count:
                raise self._damaged(self._size, "the file is cut off")
            rest = rest[count:]
        return memory

    def _read_into(self, offset: int, memory: memoryview) -> int:
        if isinstance(self._file, io.FileIO):  # without moving: streams share an unnamed file
            return os.preadv(self._file.fileno(), [memory], offset)
        self._file.seek(offset)
        count: int = self._file.readinto(memory)  # type: ignore[attr-defined]
        return count

    def _damaged(self, offset: int, why: str) -> DataLossError:
        return DataLossError(
            f"{self._name} is damaged at byte {offset}: {why}; delete it and write it anew"
        )
