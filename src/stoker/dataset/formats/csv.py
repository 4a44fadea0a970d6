"""CSV files: a record is a row, a tuple of the columns chosen; follows RFC 4180 as tf.data does."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from stoker.dataset.formats.csv_columns import Column
from stoker.dataset.formats.opening import Window
from stoker.dataset.formats.reader import Reader
from stoker.elements.spec import Spec
from stoker.errors import InvalidArgumentError

# What one read parses at most: about half a millisecond's work.
_MOST_ROWS = 128
_STEP_BYTES = 1 << 14

_LINE_END = re.compile(b"[\r\n]")


class Csv(msgspec.Struct, frozen=True, tag="csv"):
    """Rows as tuples; see `Dataset.csv`."""

    columns: tuple[Column, ...]
    header: bool = False
    delimiter: str = ","
    quotes: bool = True
    missing: str = ""
    selected: tuple[int, ...] | None = None

    def element_spec(self) -> Spec:
        """Of a row."""
        return tuple(column.spec() for column in self.columns)

    def open(self, window: Window) -> Reader:
        """Reads the file behind the window."""
        return CsvReader(window, self)


class _BadRow(Exception):  # noqa: N818 - becomes an InvalidArgumentError that says where
    """A row that cannot be read, and reading goes on behind it."""


class _Field(NamedTuple):
    """What is done with a column."""

    place: int
    column: Column
    convert: Callable[[bytes], Any]
    convert_many: Callable[[Sequence[bytes]], list[Any]]
    default: Any


class CsvReader(Reader):
    """Reads rows; one that is not as declared is an error in its place."""

    def __init__(self, window: Window, layout: Csv) -> None:
        super().__init__(window)
        self._layout = layout
        self._header = layout.header
        self._delimiter = layout.delimiter.encode()
        self._missing = (b"", layout.missing.encode())
        places = range(len(layout.columns)) if layout.selected is None else layout.selected
        self._fields = [
            _Field(place, column, column.converter(), column.column_converter(), column.missing())
            for place, column in zip(places, layout.columns, strict=True)
        ]
        self._least = 1 + max(places)
        self._field_end = re.compile(b"[\r\n" + re.escape(self._delimiter) + b"]")

    def _parse(self) -> list[tuple[Any, ...]]:
        self._pass_header()
        if plain := self._plain_rows():
            return plain
        rows: list[tuple[Any, ...]] = []
        while len(rows) < _MOST_ROWS:
            begin = self._window.offset + self._at
            try:
                fields = self._row(move=not rows)
                if fields is None:
                    break
                rows.append(self._values(fields))
            except _BadRow as bad:
                where = self._where(begin - self._window.offset)
                self._failure = InvalidArgumentError(f"{where}: {bad}")
                self._number += 1
                break
            self._number += 1
        return rows

    def _plain_rows(self) -> list[tuple[Any, ...]]:
        """Many rows with no quotes and nothing wrong, column by column: three times as fast.

        Empty if there may be something else: then row by row is the way.
        """
        block, at = self._window.block, self._at
        end = block.rfind(b"\n", at, at + _STEP_BYTES)
        if end < 0:
            return []
        text = block[at:end].removesuffix(b"\r").replace(b"\r\n", b"\n")
        if b"\r" in text or (self._layout.quotes and b'"' in text):
            return []
        rows = [line.split(self._delimiter) for line in text.split(b"\n")]
        widths = set(map(len, rows))
        if min(widths) < self._least or (self._layout.selected is None and len(widths) > 1):
            return []
        columns = list(zip(*rows, strict=self._layout.selected is None))
        if len(columns) > self._least and self._layout.selected is None:
            return []
        try:
            grouped = b"_" in text
            values = [self._column(columns[field.place], field, grouped) for field in self._fields]
        except (ValueError, OverflowError):
            return []
        self._at = end + 1
        self._number += len(rows)
        return list(zip(*values, strict=True))

    def _column(self, texts: tuple[bytes, ...], field: _Field, grouped: bool) -> list[Any]:
        """The values of a column; raises ValueError if one is missing that is required."""
        empty, named = self._missing
        if empty not in texts and named not in texts:
            return list(map(field.convert, texts)) if grouped else field.convert_many(texts)
        if field.column.required:
            raise ValueError
        return [field.default if text in self._missing else field.convert(text) for text in texts]

    def _pass(self, n: int) -> int:
        self._pass_header()
        for passed in range(n):
            try:
                if self._row(move=not passed) is None:
                    return passed
            except _BadRow:
                continue
        return n

    def _pass_header(self) -> None:
        if not self._header:
            return
        self._header = False
        try:
            found = self._row(move=True) is not None
            why = "it is empty"
        except _BadRow as bad:
            found, why = False, str(bad)
        if not found:
            raise InvalidArgumentError(f"{self._window.path} has no header that can be read: {why}")

    def _values(self, fields: list[bytes]) -> tuple[Any, ...]:
        count = len(fields)
        if count < self._least or (self._layout.selected is None and count > self._least):
            least = "at least " if self._layout.selected is not None else ""
            raise _BadRow(f"it has {count} fields; expected {least}{self._least}")
        values = []
        for place, column, convert, _, default in self._fields:
            field = fields[place]
            if field in self._missing:
                if column.required:
                    raise _BadRow(
                        f"field {place} is required but missing; give a default in "
                        "`record_defaults` to allow it"
                    )
                values.append(default)
                continue
            try:
                values.append(convert(field))
            except (ValueError, OverflowError) as error:
                raise _BadRow(
                    f"field {place} is not a valid {column.type_name}: {field!r}"
                ) from error
        return tuple(values)

    def _row(self, *, move: bool) -> list[bytes] | None:
        """The next row's fields, passed; None at the end, or if it is not whole in the block.

        Args:
            move: move the window until the row is whole.
        """
        need = len(self._window.block) - self._at + 1
        ended = False
        while True:
            block, at = self._window.block, self._at
            if ended and at == len(block):
                return None
            fields = self._simple_row(block, at)
            if fields is None:
                fields = self._scan(block, at, ended=ended)
            if fields is not None:
                return fields
            if not move:
                return None
            block = self._window.move(at, need)
            self._at = 0
            ended = len(block) < need
            need = 2 * len(block)

    def _simple_row(self, block: bytes, at: int) -> list[bytes] | None:
        """A row that ends with a newline and has no quotes; None if it is none."""
        newline = block.find(b"\n", at)
        if newline < 0:
            return None
        end = newline - (block[newline - 1 : newline] == b"\r" and newline > at)
        line = block[at:end]
        if b"\r" in line or (self._layout.quotes and b'"' in line):
            return None
        self._at = newline + 1
        return line.split(self._delimiter)

    def _scan(self, block: bytes, at: int, *, ended: bool) -> list[bytes] | None:
        """The row that begins there, field by field; None if the block may not hold all of it."""
        fields: list[bytes] = []
        while True:
            if self._layout.quotes and block[at : at + 1] == b'"':
                found = self._quoted(block, at, ended=ended)
            else:
                found = self._unquoted(block, at, ended=ended)
            if found is None:
                return None
            field, at = found
            fields.append(field)
            if block[at : at + 1] == self._delimiter:
                at += 1
                continue
            behind = self._behind_line(block, at, ended=ended)
            if behind is None:
                return None
            self._at = behind
            return fields

    def _unquoted(self, block: bytes, at: int, *, ended: bool) -> tuple[bytes, int] | None:
        match = self._field_end.search(block, at)
        if match is None and not ended:
            return None
        end = len(block) if match is None else match.start()
        field = block[at:end]
        if self._layout.quotes and b'"' in field:
            self._refuse(block, end, "an unquoted field has a quote inside", ended=ended)
            return None
        return field, end

    def _quoted(self, block: bytes, at: int, *, ended: bool) -> tuple[bytes, int] | None:
        quote = block.find(b'"', at + 1)
        while quote >= 0 and block[quote + 1 : quote + 2] == b'"':
            quote = block.find(b'"', quote + 2)
        if quote < 0:
            self._refuse(block, len(block), "a quoted field is not closed", ended=ended)
            return None
        end = quote + 1
        if end == len(block) and not ended:  # a second quote may follow
            return None
        if block[end : end + 1] not in (self._delimiter, b"\r", b"\n", b""):
            why = "a quote inside a quoted field must be doubled"
            self._refuse(block, end, why, ended=ended)
            return None
        return block[at + 1 : quote].replace(b'""', b'"'), end

    def _refuse(self, block: bytes, at: int, why: str, *, ended: bool) -> None:
        """Passes the line and raises; None if it may go on behind the block."""
        match = _LINE_END.search(block, at)
        behind = len(block) if match is None else None
        if match is not None:
            behind = self._behind_line(block, match.start(), ended=ended)
        if behind is None or (match is None and not ended):
            return
        self._at = behind
        raise _BadRow(why)

    def _behind_line(self, block: bytes, at: int, *, ended: bool) -> int | None:
        r"""Behind the line end that stands there, ``\n``, ``\r`` or ``\r\n``, or the file's end."""
        if block[at : at + 1] == b"\r":
            if at + 1 == len(block) and not ended:
                return None
            return at + 1 + (block[at + 1 : at + 2] == b"\n")
        return min(at + 1, len(block))
