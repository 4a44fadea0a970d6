"""Text files: a record is a line."""

import codecs
from contextlib import suppress
from typing import Any

import numpy as np

from stoker.dataset.formats.opening import FileBuffer
from stoker.dataset.formats.parts import PartedFormat, even_cuts
from stoker.dataset.formats.reader import RecordReader
from stoker.errors import InvalidArgumentError

# The bytes that a read splits and decodes, in well under a millisecond.
_STEP_BYTES = 1 << 16

_NEWLINE = 10

# The bytes read beyond a part for the end of its last line; a longer line takes further reads.
_LINE_BYTES = 1 << 12

# The first bytes of gzip files; UTF-8 text cannot begin with these bytes.
_GZIP = b"\x1f\x8b"

# Encodings in which many lines can be decoded in a single call: no line begins in a shift state,
# and no further byte sequence decodes to a newline.
_STATELESS = ("utf-8", "ascii", "iso8859-1")


class Text(PartedFormat, frozen=True, tag="text"):
    """Lines as text, or as bytes where `encoding` is None."""

    encoding: str | None = "utf-8"

    def cut(self, path: str, size: int, part_bytes: int) -> list[int]:
        return even_cuts(size, part_bytes)

    def open(self, buffer: FileBuffer, start: int = 0, stop: int | None = None) -> RecordReader:
        return TextReader(buffer, self.encoding, start, stop)


class TextReader(RecordReader):
    r"""Reads lines without their ends, ``\n`` or ``\r\n``; the last may have none.

    Args:
        buffer: the file.
        encoding: an encoding whose newline is always the byte 10; ``None``: lines are bytes.
        start: the first byte in which a line may begin.
        stop: the byte after the last byte in which a line may begin; ``None``: the file's end.
    """

    def __init__(
        self, buffer: FileBuffer, encoding: str | None, start: int = 0, stop: int | None = None
    ) -> None:
        super().__init__(buffer, start)
        self._stop = stop
        self._at_line = not start
        self._encoding = encoding
        # The encoding, if many lines can be decoded in a single call.
        is_stateless = encoding is not None and codecs.lookup(encoding).name in _STATELESS
        self._stateless = encoding if is_stateless else None

    def _parse(self) -> list[Any]:
        block, start, stop = self._find_lines()
        if stop <= start:
            return []
        lines = self._split(block, start, stop - (block[stop - 1] == _NEWLINE))
        if self._failure is None:
            self._at = stop
            self._number += len(lines)
        return lines

    def _split(self, block: bytes, start: int, end: int) -> list[Any]:
        """Return the lines in a range of the block, up to the first that is invalid."""
        if self._stateless is not None:
            with suppress(UnicodeDecodeError):  # raised again below, where the line is named
                text = str(memoryview(block)[start:end], self._stateless)
                lines = text.split("\n")
                return [line.removesuffix("\r") for line in lines] if "\r" in text else lines
        parts = block[start:end].split(b"\n")
        if self._encoding is None:
            return [part.removesuffix(b"\r") for part in parts]
        return self._decode(parts, start, self._encoding)

    def _decode(self, lines: list[bytes], start: int, encoding: str) -> list[str]:
        """Decode the lines, the first of which is at `start`, up to the first that is invalid."""
        decoded: list[str] = []
        for line in lines:
            try:
                decoded.append(str(line, encoding).removesuffix("\r"))
            except UnicodeDecodeError as error:
                self._number += len(decoded)
                remedy = "give the file's `encoding`, or encoding=None for bytes"
                if self._buffer.offset + start == 0 and line.startswith(_GZIP):
                    remedy = 'it looks like gzip: give compression_type="GZIP"'
                self._failure = InvalidArgumentError(
                    f"{self._where(start)} is not {encoding}: {error.reason} at byte "
                    f"{error.start} of the line; {remedy}"
                )
                self._number += 1
                self._at = min(start + len(line) + 1, len(self._buffer.block))
                break
            start += len(line) + 1
        return decoded

    def _skip(self, n: int) -> int:
        block, start, stop = self._find_lines()
        if stop <= start:
            return 0
        count = block.count(b"\n", start, stop) + (block[stop - 1] != _NEWLINE)
        if count <= n:
            self._at = stop
            return count
        newlines = np.flatnonzero(np.frombuffer(block, np.uint8, stop - start, start) == _NEWLINE)
        self._at = start + int(newlines[n - 1]) + 1
        return n

    def _find_lines(self) -> tuple[bytes, int, int]:
        """Return the block and the range of the next lines, which is empty at the end."""
        if self._stop is None:
            return self._find_complete_lines()
        if not self._at_line:
            self._find_first_line()
        if self._buffer.offset + self._at >= self._stop:
            return self._buffer.block, self._at, self._at
        block, at, stop = self._find_complete_lines()
        last = self._stop - self._buffer.offset - 1
        if stop > last:  # the line with the last byte of the part is its last line
            stop = block.find(b"\n", last, stop) + 1 or stop
        return block, at, stop

    def _find_first_line(self) -> None:
        """Move to the first line that begins in the part, or to a byte beyond the part."""
        assert self._stop is not None
        self._at_line = True
        at = self._start - 1  # this byte may end a line
        newline = -1
        while newline < 0 and self._buffer.offset + at < self._stop:
            block = self._buffer.move(at, 1, self._want(at))
            if not block:
                break
            newline = block.find(b"\n")
            at = len(block)
        self._at = newline + 1 or at

    def _want(self, at: int) -> int | None:
        """Return about the number of bytes to read from `at` in the block."""
        if self._stop is None:
            return None
        return max(0, self._stop - self._buffer.offset - at) + _LINE_BYTES

    def _find_complete_lines(self) -> tuple[bytes, int, int]:
        """Return the block and the range of its complete lines, which is empty at the end."""
        block, at = self._buffer.block, self._at
        need = len(block) - at + 1
        ended = False
        while not (stop := _end_of_lines(block, at)):
            if ended:
                return block, at, len(block)
            block = self._buffer.move(at, need, self._want(at))
            at = self._at = 0
            ended = len(block) < need
            need = 2 * len(block)
        return block, at, stop


def _end_of_lines(block: bytes, at: int) -> int:
    """Return the end of the last line of a step, or of a longer first line; 0 if neither ends."""
    newline = block.rfind(b"\n", at, at + _STEP_BYTES)
    if newline < 0:
        newline = block.find(b"\n", at + _STEP_BYTES)
    return newline + 1
