"""TFRecord files: records with their length and two checksums.

Each record is its length (8 bytes, little-endian), the masked CRC-32C of these 8 bytes (4), the
data, and the masked CRC-32C of the data (4). Checksums are masked because data may contain CRC-32C
checksums itself.
"""

import functools
from collections.abc import Callable
from contextlib import closing, suppress
from typing import ClassVar

import numpy as np

from stoker.dataset.formats import counts
from stoker.dataset.formats.opening import FileBuffer, open_buffer
from stoker.dataset.formats.parts import PartedFormat, even_cuts
from stoker.dataset.formats.reader import RecordReader
from stoker.errors import DataLossError, FailedPreconditionError, StokerError

MASK_DELTA = 0xA282EAD8


def load_crc32c() -> Callable[[bytes], int]:
    """Return the function that computes CRC-32C.

    Raises:
        FailedPreconditionError: if google-crc32c is not installed.
    """
    try:
        import google_crc32c
    except ImportError as error:
        raise FailedPreconditionError(
            "TFRecord files are checked with google-crc32c, which is not installed here; run "
            "`pip install 'stoker[tfrecord]'`"
        ) from error
    value: Callable[[bytes], int] = google_crc32c.value
    return value


def masked(crc: int) -> int:
    """Return a checksum in the form of TFRecord files."""
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


_HEADER = 12
_FOOTER = 4

# The most records that a read returns: their checksums take about 0.25 ms.
_MAX_RECORDS = 1024

# The most verified headers remembered with their lengths: a lookup is cheaper than a checksum, and
# lengths recur.
_MAX_HEADERS = 1 << 13

# After skipping a record this long, read a short block: often only its first header is needed.
_LONG_RECORD = 1 << 15
_SHORT_BLOCK = 1 << 12

_NO_LIMIT = 1 << 62


class TFRecord(PartedFormat, frozen=True, tag="tfrecord"):
    """Records as bytes."""

    walked: ClassVar[bool] = True

    def cut(self, path: str, size: int, part_bytes: int) -> list[int]:
        # The file is walked from header to header. After a header that is corrupt or cannot be
        # read there is no cut, so that the error is raised when that record is read.
        version = counts.version_of(path)
        if version is None or version.size != size:
            return _walked_cuts(path, size, part_bytes)
        return list(_remembered_cuts(version, part_bytes))

    def open(self, buffer: FileBuffer, start: int = 0, stop: int | None = None) -> RecordReader:
        if stop is not None:
            buffer.limit(stop)
        return TFRecordReader(buffer, start)


@functools.lru_cache(maxsize=64)
def _remembered_cuts(version: counts.Version, part_bytes: int) -> tuple[int, ...]:
    return tuple(_walked_cuts(version.path, version.size, part_bytes))


def _walked_cuts(path: str, size: int, part_bytes: int) -> list[int]:
    cuts = {0}
    with suppress(StokerError), closing(open_buffer(path, "")) as buffer:
        reader = TFRecordReader(buffer)
        for target in even_cuts(size, part_bytes)[1:-1]:
            cuts.add(reader.walk(target))
    return [*sorted(cut for cut in cuts if cut < size), size]


class TFRecordReader(RecordReader):
    """Reads a TFRecord file; both checksums of each record are verified.

    After corrupt data with a valid length reading continues with the next record; after a corrupt
    length the next record cannot be found, and the file ends.
    """

    def __init__(self, buffer: FileBuffer, start: int = 0) -> None:
        super().__init__(buffer, start)
        self._crc = load_crc32c()
        self._lengths: dict[bytes, int] = {}

    def _parse(self) -> list[bytes]:
        records, ends = self._cut()
        if not records:
            size = self._find()
            if not size:
                return []
            available = len(self._buffer.move(0, size))
            if available < size:
                raise self._truncated(size, available)
            records, ends = self._cut()
        bad = self._first_bad(records, ends)
        if bad is None:
            self._number += len(records)
            self._at = ends[-1] + _FOOTER
            return records
        self._number += bad
        self._at = ends[bad] + _FOOTER
        data = len(records[bad])
        self._failure = DataLossError(
            f"{self._where(ends[bad] - data - _HEADER)} is corrupt: the checksum of its {data} "
            "bytes of data does not match the stored one; write the file again, or skip the record "
            "with ignore_errors()"
        )
        self._number += 1
        return records[:bad]

    def _cut(self) -> tuple[list[bytes], list[int]]:
        """Return the complete records of the block, and where the data of each ends."""
        block, at, size = self._buffer.block, self._at, len(self._buffer.block)
        length_of = self._lengths.get
        records: list[bytes] = []
        ends: list[int] = []
        # Bound methods in locals: this loop runs once per record.
        add_record, add_end = records.append, ends.append
        for _ in range(_MAX_RECORDS):
            length = length_of(block[at : at + _HEADER])
            if length is None and (length := self._learn(at)) is None:
                break
            start = at + _HEADER
            end = start + length
            at = end + _FOOTER
            if at > size:
                break
            add_record(block[start:end])
            add_end(end)
        return records, ends

    def _learn(self, at: int) -> int | None:
        """Return the length of the record at `at`; None if its header is incomplete or corrupt."""
        header = self._buffer.block[at : at + _HEADER]
        if (known := self._lengths.get(header)) is not None:
            return known
        length = int.from_bytes(header[:8], "little")
        if (
            len(header) < _HEADER
            or masked(self._crc(header[:8])).to_bytes(4, "little") != header[8:]
        ):
            return None
        # Records of ever different lengths must not fill the memory.
        if len(self._lengths) >= _MAX_HEADERS:
            self._lengths.clear()
        self._lengths[header] = length
        return length

    def _first_bad(self, records: list[bytes], ends: list[int]) -> int | None:
        """Return the index of the first record whose checksum does not match, if any."""
        found = np.fromiter(map(self._crc, records), np.uint32, len(records))
        masks = (found >> np.uint32(15) | found << np.uint32(17)) + np.uint32(MASK_DELTA)
        places = np.array(ends)[:, None] + np.arange(_FOOTER)
        stored = np.frombuffer(self._buffer.block, np.uint8)[places].view("<u4")[:, 0]
        wrong = np.flatnonzero(masks != stored)
        return int(wrong[0]) if len(wrong) else None

    def _find(self) -> int:
        """Move the buffer to the next record; return its size in the file, 0 at the end."""
        block = self._buffer.move(self._at, _HEADER)
        self._at = 0
        if not block:
            return 0
        if len(block) < _HEADER:
            raise self._truncated(_HEADER, len(block))
        length = self._learn(0)
        if length is None:
            raise DataLossError(
                f"{self._where(0)} is corrupt, or this is no TFRecord file: the checksum of its "
                f"length ({int.from_bytes(block[:8], 'little')}) does not match, so the next "
                "record cannot be found; the rest of the file is not read"
            )
        return _HEADER + length + _FOOTER

    def _truncated(self, size: int, available: int) -> DataLossError:
        unit = "bytes" if size > _HEADER else "bytes or more"
        return DataLossError(
            f"{self._where(0)} is truncated: it has {size} {unit}, and the file ends after "
            f"{available}"
        )

    def walk(self, offset: int) -> int:
        """Move to the first record that begins at byte `offset` or later; return its byte.

        Raises:
            DataLossError: if an earlier header is corrupt or truncated.
            UnavailableError: if the file cannot be read.
        """
        while (at := self._buffer.offset + self._at) < offset:
            in_block = self._skip_in_block(_NO_LIMIT, offset - self._buffer.offset)
            if not in_block and not self._skip(1):
                break
        return at

    def _skip(self, n: int) -> int:
        if skipped := self._skip_in_block(n):
            return skipped
        size = self._find()
        if not size:
            return 0
        if skipped := self._skip_in_block(n):
            return skipped
        start = self._buffer.offset
        self._buffer.move(size, 0, _SHORT_BLOCK if size > _LONG_RECORD else None)
        available = self._buffer.offset - start
        if available < size:
            self._buffer.offset = start
            raise self._truncated(size, available)
        return 1

    def _skip_in_block(self, n: int, size: int = _NO_LIMIT) -> int:
        """Skip records that end in the first `size` bytes of the block, reading their headers."""
        block, at = self._buffer.block, self._at
        size = min(size, len(block))
        length_of = self._lengths.get
        skipped = 0
        while skipped < n:
            length = length_of(block[at : at + _HEADER])
            if length is None and (length := self._learn(at)) is None:
                break
            end = at + _HEADER + length + _FOOTER
            if end > size:
                break
            at = end
            skipped += 1
        self._at = at
        return skipped
