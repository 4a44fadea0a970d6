"""Text files: a record is a line."""

import codecs
from typing import Any

import msgspec
import numpy as np

from stoker.dataset.formats.opening import FileBuffer
from stoker.dataset.formats.reader import RecordReader
from stoker.elements.spec import Spec, TensorSpec
from stoker.errors import InvalidArgumentError

# The bytes that one read splits and decodes, in well under a millisecond.
_STEP_BYTES = 1 << 16

_NEWLINE = 10

# The first bytes of gzip files; UTF-8 text cannot begin with them.
_GZIP = b"\x1f\x8b"

# Encodings in which many lines can be decoded in one call: no line begins in a shift state, and no
# other byte sequence decodes to a newline.
_STATELESS = ("utf-8", "ascii", "iso8859-1")


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Lines as text, or as bytes where `encoding` is None."""

    encoding: str | None = "utf-8"

    def element_spec(self) -> Spec:
        """Return the spec of a line."""
        return TensorSpec((), np.dtype(object))

    def open(self, buffer: FileBuffer) -> RecordReader:
        """Return a reader of the file in `buffer`."""
        return TextReader(buffer, self.encoding)


class TextReader(RecordReader):
    r"""Reads lines without their ends, ``\n`` or ``\r\n``; the last may have none.

    Args:
        buffer: the file.
        encoding: one in which a newline is always the byte 10; ``None``: lines are bytes.
    """

    def __init__(self, buffer: FileBuffer, encoding: str | None) -> None:
        super().__init__(buffer)
        self._encoding = encoding
        self._stateless = encoding is not None and codecs.lookup(encoding).name in _STATELESS

    def _parse(self) -> list[Any]:
        block, start, stop = self._find_lines()
        if stop <= start:
            return []
        end = stop - (block[stop - 1] == _NEWLINE)
        lines: list[Any]
        if self._stateless:
            assert self._encoding is not None
            try:
                text = str(memoryview(block)[start:end], self._encoding)
            except UnicodeDecodeError:  # raised again, naming the line
                lines = self._decode(block[start:end].split(b"\n"), start)
            else:
                lines = text.split("\n")
                if "\r" in text:
                    lines = [line.removesuffix("\r") for line in lines]
        elif self._encoding is not None:
            lines = self._decode(block[start:end].split(b"\n"), start)
        else:
            lines = [line.removesuffix(b"\r") for line in block[start:end].split(b"\n")]
        if self._failure is None:
            self._at = stop
            self._number += len(lines)
        return lines

    def _decode(self, lines: list[bytes], start: int) -> list[str]:
        """Decode the lines, the first of which is at `start`, up to the first that is invalid."""
        assert self._encoding is not None
        decoded: list[str] = []
        for line in lines:
            try:
                decoded.append(str(line, self._encoding).removesuffix("\r"))
            except UnicodeDecodeError as error:
                self._number += len(decoded)
                remedy = "give the file's `encoding`, or encoding=None for bytes"
                if self._buffer.offset + start == 0 and line.startswith(_GZIP):
                    remedy = 'it looks like gzip: give compression_type="GZIP"'
                self._failure = InvalidArgumentError(
                    f"{self._where(start)} is not {self._encoding}: {error.reason} at byte "
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
        """Return the block and the range of complete lines in it, which is empty at the end."""
        block, at = self._buffer.block, self._at
        need = len(block) - at + 1
        ended = False
        while not (stop := _end_of_lines(block, at)):
            if ended:
                return block, at, len(block)
            block = self._buffer.move(at, need)
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
