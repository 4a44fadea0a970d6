"""CSV files: each record is a row, as a tuple of the selected columns, by RFC 4180 as in tf.data.

Python's csv module is not used: the module accepts quotes inside unquoted fields, limits fields to
131,072 characters in the whole process, reports no byte offsets, and is not faster. Measured on
rows of six fields, with conversion: without quotes 1.10 million rows/s with `split`, 0.93 with csv;
with a quoted field 0.70 with a regular expression, 0.74 with csv and a check for misplaced quotes.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from stoker.dataset.formats.csv_columns import Column
from stoker.dataset.formats.opening import FileBuffer
from stoker.dataset.formats.reader import RecordReader
from stoker.elements.spec import Spec, TensorSpec
from stoker.errors import InvalidArgumentError

# The bytes that a read parses in about 0.5 ms, unless a row is longer.
_STEP_BYTES = 1 << 14

# A quoted field. Its repeated group is not possessive: Python 3.11.1 matches such groups wrongly
# (gh-100061).
_QUOTED = rb'"[^"]*+(?:""[^"]*+)*"'

# A line end that is complete: "\r" at the end of a block may be the first half of "\r\n".
_LINE_END_IN_BLOCK = rb"(?:\r?\n|\r(?=[^\n]))"

_LINE_END = re.compile(rb"\r\n?|\n|\Z")


class Csv(msgspec.Struct, frozen=True, tag="csv"):
    """Rows as tuples; see `Dataset.csv`."""

    columns: tuple[Column, ...]
    positions: tuple[int, ...]
    """The number of each column in a row."""
    header: bool = False
    field_delim: str = ","
    use_quote_delim: bool = True
    na_value: str = ""
    max_fields: int | None = None
    """The most fields of a row; None: any number."""

    def element_spec(self) -> Spec:
        """Return the spec of a row."""
        return tuple(TensorSpec((), column.dtype) for column in self.columns)

    def open(self, buffer: FileBuffer) -> RecordReader:
        """Return a reader of the file in `buffer`."""
        return CsvReader(buffer, self)


class _BadRow(Exception):  # noqa: N818 - becomes an InvalidArgumentError that names the row
    """A row that is not as declared, in TensorFlow's words; later rows can be read."""


class _Field(NamedTuple):
    """A selected column: its position in a row, and the conversion of its fields."""

    position: int
    column: Column
    convert: Callable[[Sequence[bytes]], list[Any]]
    default: Any


class CsvReader(RecordReader):
    """Reads rows; a row that is not as declared is an error at its position."""

    def __init__(self, buffer: FileBuffer, layout: Csv) -> None:
        super().__init__(buffer)
        self._header = layout.header
        self._quotes = layout.use_quote_delim
        self._delimiter = layout.field_delim.encode()
        self._missing = (b"", layout.na_value.encode())
        self._fields = [
            _Field(position, column, column.converter(), column.missing())
            for position, column in zip(layout.positions, layout.columns, strict=True)
        ]
        self._min_fields = 1 + max(layout.positions)
        self._max_fields = layout.max_fields
        self._exact = self._max_fields == self._min_fields
        self._step = _STEP_BYTES
        self._ends_file = False
        delimiter = re.escape(self._delimiter)
        unquoted = rb"[^\r\n%b%b]*+" % (delimiter, b'"' if self._quotes else b"")
        self._any_field = b"%b|%b" % (_QUOTED, unquoted) if self._quotes else unquoted
        self._more_fields = b"(?:%b(?:%b))*" % (delimiter, self._any_field)
        row = b"(?:%b)%b%b" % (self._any_field, self._more_fields, _LINE_END_IN_BLOCK)
        self._match_row = re.compile(row).match
        rest = rb"([^\r\n%b]*+)(%b|\r\n?|\n|\Z)" % (delimiter, delimiter)
        self._match_rest = re.compile(rest).match

    @cached_property
    def _match_fields(self) -> Callable[..., re.Match[bytes] | None]:
        """Match a row, its fields as groups; compiled on first use, in 50 µs per field."""
        fields = [b"(%b)" % self._any_field] * self._min_fields
        most = self._max_fields
        more = self._more_fields
        if most is not None:  # the group of `_more_fields`, repeated as often as allowed
            more = more.removesuffix(b"*") + b"{0,%d}" % (most - self._min_fields)
        return re.compile(re.escape(self._delimiter).join(fields) + more + _LINE_END_IN_BLOCK).match

    def _parse(self) -> list[tuple[Any, ...]]:
        self._skip_header()
        while not (rows := self._parse_columns()):
            # The next row is longer than the step, incomplete in the block, or not as declared.
            start = self._at
            try:
                fields = self._scan()
                if fields is not None:
                    rows = [self._values(fields)]
            except _BadRow as bad:
                self._failure = InvalidArgumentError(f"{self._where(start)}: {bad}")
                self._number += 1
                break
            if rows or not self._read_more():
                break
        self._number += len(rows)
        return rows

    def _parse_columns(self) -> list[tuple[Any, ...]]:
        """Parse a step of rows column by column; ``[]`` if the next row must be parsed alone."""
        self._step = min(2 * self._step + 1, _STEP_BYTES)
        while True:
            columns, end = self._find_columns()
            if not columns:
                return []
            underscores = self._buffer.block.find(b"_", self._at, end) >= 0
            try:
                values = [self._column(columns[f.position], f, underscores) for f in self._fields]
            except (ValueError, OverflowError):
                self._step //= 4  # to yield the rows before the bad row
                continue
            self._at = end
            return list(zip(*values, strict=True))

    def _find_columns(self) -> tuple[list[Sequence[bytes]], int]:
        """Return the fields of the next complete rows by column, and where these rows end."""
        block, at = self._buffer.block, self._at
        limit = at + self._step
        if end := block.rfind(b"\n", at, limit) + 1:
            # Without quotes, splitting is 1.3 times as fast as matching.
            text = block[at : end - 1].removesuffix(b"\r").replace(b"\r\n", b"\n")
            if b"\r" not in text and not (self._quotes and b'"' in text):
                lines = [line.split(self._delimiter) for line in text.split(b"\n")]
                widths = set(map(len, lines))
                if self._min_fields <= min(widths) and not self._too_many(max(widths)):
                    return list(zip(*lines, strict=self._exact)), end
        rows = []
        if end or block.find(b"\r", at, limit) >= 0:
            while match := self._match_fields(block, at, limit):
                rows.append(match.groups())
                at = match.end()
        columns: list[Sequence[bytes]] = list(zip(*rows, strict=True))
        return [_unquoted_column(column) for column in columns] if self._quotes else columns, at

    def _column(self, texts: Sequence[bytes], field: _Field, underscores: bool) -> list[Any]:
        """Convert fields of a column.

        Raises:
            ValueError: if a field is invalid, or missing and required.
            OverflowError: if a field is out of range.
        """
        empty, na_value = self._missing
        if empty in texts or na_value in texts:
            if field.column.required:
                raise ValueError
            present = [text for text in texts if text not in self._missing]
            values = iter(self._column(present, field, underscores) if present else ())
            return [field.default if text in self._missing else next(values) for text in texts]
        if underscores and field.column.is_number and b"_" in b"".join(texts):
            raise ValueError  # Python accepts underscores between digits
        return field.convert(texts)

    def _too_many(self, fields: int) -> bool:
        return self._max_fields is not None and fields > self._max_fields

    def _wrong_count(self, count: int) -> _BadRow:
        expected = len(self._fields)  # columns that are not read are not counted
        if self._too_many(count):
            return _BadRow(f"Expect {expected} fields but have more in record: {count}")
        found = sum(field.position < count for field in self._fields)
        return _BadRow(f"Expect {expected} fields but have {found} in record")

    def _values(self, fields: list[bytes]) -> tuple[Any, ...]:
        count = len(fields)
        if count < self._min_fields or self._too_many(count):
            raise self._wrong_count(count)
        values = []
        for field in self._fields:
            text = fields[field.position]
            try:
                values += self._column((text,), field, underscores=True)
            except (ValueError, OverflowError) as error:
                raise _BadRow(
                    f"Field {field.position} is required but missing in record! Give a default in "
                    "`record_defaults` to allow it"
                    if text in self._missing
                    else f"field {field.position} is not a valid {field.column.type_name}: {text!r}"
                ) from error
        return tuple(values)

    def _skip(self, n: int) -> int:
        self._skip_header()
        skipped = 0
        while skipped < n:
            if match := self._match_row(self._buffer.block, self._at, self._at + _STEP_BYTES):
                self._at = match.end()
            else:
                with suppress(_BadRow):
                    if self._scan() is None:
                        if skipped or not self._read_more():
                            break
                        continue
            skipped += 1
        return skipped

    def _skip_header(self) -> None:
        if not self._header:
            return
        self._header = False
        try:
            while (fields := self._scan()) is None and self._read_more():
                pass
            reason = "it is empty" if fields is None else ""
        except _BadRow as bad:
            reason = str(bad)
        if reason:
            path = self._buffer.path
            raise InvalidArgumentError(f"Can't read header of file {path}: {reason}")

    def _read_more(self) -> bool:
        """Move the buffer to contain more of the next row; return False at the end of the file."""
        if self._ends_file:
            return False
        size = len(self._buffer.block)
        need = size - self._at + 1 if self._at else 2 * size + 1
        self._ends_file = len(self._buffer.move(self._at, need)) < need
        self._at = 0
        return True

    def _scan(self) -> list[bytes] | None:
        """Consume a row field by field; return None if the row may continue after the block."""
        block, at = self._buffer.block, self._at
        if at == len(block):
            return None
        fields = []
        separator, misquoted = self._delimiter, ""
        while separator == self._delimiter and not misquoted:
            start, quoted = at, self._quotes and block.startswith(b'"', at)
            if quoted and not (at := _quoted_end(block, start)):
                at, misquoted = (
                    len(block),
                    "Reached end of file without closing quoted field in record",
                )
            match = self._match_rest(block, at)
            assert match is not None  # the pattern matches anything
            rest, separator = match.groups()
            fields.append(_unquoted(block[start:at]) if quoted else rest)
            if quoted and rest:
                misquoted = "Quote inside a string has to be escaped by another quote"
            elif self._quotes and not quoted and b'"' in rest:
                misquoted = "Unquoted fields cannot have quotes inside"
            at = match.end()
        if separator == self._delimiter:
            match = _LINE_END.search(block, at)
            assert match is not None
            separator, at = match[0], match.end()
        if at == len(block) and not self._ends_file and not separator.endswith(b"\n"):
            return None
        self._at = at
        if misquoted:
            raise _BadRow(misquoted)
        return fields


def _quoted_end(block: bytes, at: int) -> int:
    """Return the end of the quoted field at `at`; 0 if the block does not contain its end."""
    end = block.find(b'"', at + 1) + 1
    while end and block.startswith(b'"', end):
        end = block.find(b'"', end + 1) + 1
    return end


def _unquoted(field: bytes) -> bytes:
    inner = field[1:-1]
    return inner.replace(b'""', b'"') if b'"' in inner else inner


def _unquoted_column(fields: Sequence[bytes]) -> Sequence[bytes]:
    if b'"' not in b"".join(fields):
        return fields
    return [_unquoted(field) if field[:1] == b'"' else field for field in fields]
