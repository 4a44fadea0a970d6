"""TFRecord files: records with their length and two checksums.

Each record is its length (8 bytes, little-endian), the masked CRC-32C of these 8 bytes (4), the
data, and the masked CRC-32C of the data (4).
"""

import msgspec
import numpy as np

from stoker.dataset.formats.checksum import MASK_DELTA, load_crc32c, masked
from stoker.dataset.formats.opening import Window
from stoker.dataset.formats.reader import Reader
from stoker.elements.spec import Spec, TensorSpec
from stoker.errors import DataLossError

_HEADER = 12
_FOOTER = 4

# What one read returns at most: its checksums take about a quarter of a millisecond.
_MOST_RECORDS = 1024

# Verified headers are kept with their lengths: looking one up is cheaper than computing its
# checksum, and lengths recur.
_MOST_HEADERS = 1 << 13

# Behind a long record that is passed, a whole block would be read for the sake of one header.
_LONG_RECORD = 1 << 15
_SHORT_BLOCK = 1 << 12


class TFRecord(msgspec.Struct, frozen=True, tag="tfrecord"):
    """Records as bytes."""

    def element_spec(self) -> Spec:
        """Of a record."""
        return TensorSpec((), np.dtype(object))

    def open(self, window: Window) -> Reader:
        """Reads the file behind the window."""
        return TFRecordReader(window)


class TFRecordReader(Reader):
    """Reads a TFRecord file; both checksums of each record are verified.

    Behind corrupt data of a sound length reading goes on with the next record; behind a corrupt
    length the rest of the file cannot be told apart.
    """

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._crc = load_crc32c()
        self._lengths: dict[bytes, int] = {}

    def _parse(self) -> list[bytes]:
        records, ends = self._cut()
        if not records:
            size = self._find()
            if not size:
                return []
            held = len(self._window.move(0, size))
            if held < size:
                raise self._truncated(size, held)
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
            "bytes of data is not the one behind them; write it anew, or pass over it with "
            "ignore_errors()"
        )
        self._number += 1
        return records[:bad]

    def _cut(self) -> tuple[list[bytes], list[int]]:
        """The whole records of the block, and where the data of each ends."""
        block, at, size = self._window.block, self._at, len(self._window.block)
        length_of = self._lengths.get
        records: list[bytes] = []
        ends: list[int] = []
        keep_record, keep_end = records.append, ends.append
        for _ in range(_MOST_RECORDS):
            length = length_of(block[at : at + _HEADER])
            if length is None and (length := self._learn(at)) is None:
                break
            start = at + _HEADER
            end = start + length
            at = end + _FOOTER
            if at > size:
                break
            keep_record(block[start:end])
            keep_end(end)
        return records, ends

    def _learn(self, at: int) -> int | None:
        """The length of the record that begins there; `None` if the block does not say."""
        header = self._window.block[at : at + _HEADER]
        if (known := self._lengths.get(header)) is not None:
            return known
        length = int.from_bytes(header[:8], "little")
        if (
            len(header) < _HEADER
            or masked(self._crc(header[:8])).to_bytes(4, "little") != header[8:]
        ):
            return None
        if len(self._lengths) >= _MOST_HEADERS:
            self._lengths.clear()
        self._lengths[header] = length
        return length

    def _first_bad(self, records: list[bytes], ends: list[int]) -> int | None:
        """The first record whose checksum is not the one behind it."""
        found = np.fromiter(map(self._crc, records), np.uint32, len(records))
        masks = (found >> np.uint32(15) | found << np.uint32(17)) + np.uint32(MASK_DELTA)
        places = np.array(ends)[:, None] + np.arange(_FOOTER)
        stored = np.frombuffer(self._window.block, np.uint8)[places].view("<u4")[:, 0]
        wrong = np.flatnonzero(masks != stored)
        return int(wrong[0]) if len(wrong) else None

    def _find(self) -> int:
        """Moves the window to the next record; returns its size in the file, 0 at the end."""
        block = self._window.move(self._at, _HEADER)
        self._at = 0
        if not block:
            return 0
        if len(block) < _HEADER:
            raise self._truncated(_HEADER, len(block))
        length = self._learn(0)
        if length is None:
            raise DataLossError(
                f"{self._where(0)} is corrupt, or this is no TFRecord file: the checksum of its "
                f"length ({int.from_bytes(block[:8], 'little')}) is wrong, so that what follows "
                "cannot be told apart; the rest of the file is not read"
            )
        return _HEADER + length + _FOOTER

    def _truncated(self, size: int, held: int) -> DataLossError:
        what = "bytes" if size > _HEADER else "bytes or more"
        return DataLossError(
            f"{self._where(0)} is truncated: it has {size} {what}, and the file ends after {held}"
        )

    def _pass(self, n: int) -> int:
        if passed := self._pass_whole(n):
            return passed
        size = self._find()
        if not size:
            return 0
        if passed := self._pass_whole(n):
            return passed
        behind = self._window.offset + size
        self._window.move(size, 0, _SHORT_BLOCK if size > _LONG_RECORD else None)
        if self._window.offset < behind:
            start = behind - size
            held = self._window.offset - start
            self._window.offset = start
            raise self._truncated(size, held)
        return 1

    def _pass_whole(self, n: int) -> int:
        """Passes the records that lie in the block, by their headers alone."""
        block, at, size = self._window.block, self._at, len(self._window.block)
        length_of = self._lengths.get
        passed = 0
        while passed < n:
            length = length_of(block[at : at + _HEADER])
            if length is None and (length := self._learn(at)) is None:
                break
            behind = at + _HEADER + length + _FOOTER
            if behind > size:
                break
            at = behind
            passed += 1
        self._at = at
        return passed
