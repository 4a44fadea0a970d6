"""Files of fixed-length records, between a header and a footer."""

from stoker.dataset.formats.opening import FileBuffer
from stoker.dataset.formats.parts import PartedFormat, even_cuts
from stoker.dataset.formats.reader import RecordReader
from stoker.errors import DataLossError, InvalidArgumentError

# The most records that a read returns, in well under a millisecond.
_MAX_RECORDS = 4096


class FixedLength(PartedFormat, frozen=True, tag="fixed_length"):
    """Records of `record_bytes` between a header and a footer, neither of which is yielded."""

    record_bytes: int
    header_bytes: int = 0
    footer_bytes: int = 0

    def cut(self, path: str, size: int, part_bytes: int) -> list[int]:
        body = size - self.header_bytes - self.footer_bytes
        if body < 0 or body % self.record_bytes:
            return [0, size]  # reading the file raises the error
        records = body // self.record_bytes
        cuts = even_cuts(records, max(1, part_bytes // self.record_bytes))
        return [self.header_bytes + cut * self.record_bytes for cut in cuts]

    def open(self, buffer: FileBuffer, start: int = 0, stop: int | None = None) -> RecordReader:
        if stop is None:
            return FixedLengthReader(buffer, self)
        buffer.limit(stop)
        return FixedLengthReader(buffer, FixedLength(self.record_bytes, header_bytes=start), start)


class FixedLengthReader(RecordReader):
    """Reads fixed-length records.

    If the size of the file is known, a file with an incomplete record is rejected before any record
    is read, and records are skipped in O(1).
    """

    def __init__(self, buffer: FileBuffer, layout: FixedLength, start: int = 0) -> None:
        super().__init__(buffer, start)
        self._layout = layout
        self._length = layout.record_bytes
        self._footer = layout.footer_bytes
        self._at = layout.header_bytes
        # The size of compressed files is unknown: such a file is checked at its end.
        if buffer.size is not None:
            self._check_size(buffer.size)

    def _parse(self) -> list[bytes]:
        count = self._available_records()
        block, start = self._buffer.block, self._at
        self._at = start + count * self._length
        self._number += count
        return [block[at : at + self._length] for at in range(start, self._at, self._length)]

    def _skip(self, n: int) -> int:
        if self._buffer.size is None:
            count = min(n, self._available_records())
        else:
            end = self._buffer.size - self._footer
            count = min(n, (end - self._buffer.offset - self._at) // self._length)
        self._at += count * self._length
        return count

    def _available_records(self) -> int:
        """Return the number of records in the block, moving an empty block; 0 at the end."""
        available = len(self._buffer.block) - self._at - self._footer
        if available < self._length:
            block = self._buffer.move(self._at, self._length + self._footer)
            self._at = 0
            available = len(block) - self._footer
            if available < self._length:
                self._check_end(available)
                return 0
        return min(available // self._length, _MAX_RECORDS)

    def _check_size(self, size: int) -> None:
        body = size - self._layout.header_bytes - self._footer
        if body < 0 or body % self._length:
            raise InvalidArgumentError(
                f"Excluding the header ({self._layout.header_bytes} bytes) and footer "
                f'({self._footer} bytes), input file "{self._buffer.path}" has body length {body} '
                "bytes, which is not an exact multiple of the record length "
                f"({self._length} bytes)."
            )

    def _check_end(self, available: int) -> None:
        """Raise if the file does not end with a complete record and a footer."""
        if self._buffer.offset < self._layout.header_bytes:
            raise DataLossError(
                f"{self._buffer.path} is truncated: it ends after {self._buffer.offset} bytes, in "
                f"its header of {self._layout.header_bytes}"
            )
        if available:
            raise DataLossError(
                f"{self._where(0)} is truncated: it has {self._length} bytes and is followed by a "
                f"footer of {self._footer}, and the file ends after {available + self._footer}"
            )
