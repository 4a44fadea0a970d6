"""Tables that fit the terminal: cells without room in their row are written around it."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

T = TypeVar("T")

LEAST_TEXT = 40
"""Least width in which the text of the last column is wrapped beside the others."""

GAP = "  "


def output_console() -> Console:
    """Return the console of standard output; without a terminal a row is one line, as for grep."""
    console = Console()
    wraps = console.is_terminal or "COLUMNS" in os.environ
    # A width that no row reaches, so that a row is one line.
    return console if wraps else Console(width=10_000)


@dataclass(frozen=True)
class TableSpec(Generic[T]):
    """The columns of a table, the rule for red rows, and the note below a row.

    Attributes:
        columns: for each heading the text of an item's cell; ">" before a heading aligns its
            column to the right.
        is_red: returns whether the row of an item is red.
        note: returns a text below an item's row.
    """

    columns: Mapping[str, Callable[[T], str]]
    is_red: Callable[[T], bool] = lambda _: False
    note: Callable[[T], str] = lambda _: ""


class Rows:
    """A table without a frame, of plain text: names of users are no markup.

    If it is wider than the terminal, the last cell of each row is written below the row; if it is
    still too wide, the first cell above the row; and if it is still too wide, the others as a list.

    Args:
        items: one for each row.
        table: its columns.
    """

    def __init__(self, items: Iterable[T], table: TableSpec[T]) -> None:
        self._columns = [name.removeprefix(">") for name in table.columns]
        self._right = [name.startswith(">") for name in table.columns]
        self._rows = [
            (
                [cell(item) for cell in table.columns.values()],
                "red" * table.is_red(item),
                table.note(item),
            )
            for item in items
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [self._columns, *(cells for cells, _, _ in self._rows)]
        # Cells of the terminal, since a Chinese character takes two.
        widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
        for cells, style, note in [(self._columns, "bold", ""), *self._rows]:
            for start, text in self._parts(cells, widths, options.max_width):
                yield from _hanging(console, options.max_width, start, text, style)
            if note:
                yield from _hanging(console, options.max_width, GAP, note, style)

    def _parts(
        self, cells: Sequence[str], widths: Sequence[int], width: int
    ) -> Iterator[tuple[str, str]]:
        """Yield the lines of a row, each as its start and a text that is wrapped after the start.

        The layout depends on `widths` only, so that it is the same for all rows.
        """
        beside = width - _total(widths[:-1]) - len(GAP)
        if beside >= min(widths[-1], LEAST_TEXT):
            last = cells[-1].rjust(widths[-1]) if self._right[-1] else cells[-1]
            yield self._line(cells, widths, range(len(cells) - 1)) + GAP, last
            return
        # Headings have no last cell here: each row names its last column.
        is_heading = cells is self._columns
        if _total(widths[:-1]) <= width:
            yield "", self._line(cells, widths, range(len(cells) - 1))
        elif _total(widths[1:-1]) + len(GAP) <= width:
            yield "", cells[0]
            yield "", GAP + self._line(cells, widths, range(1, len(cells) - 1))
        elif not is_heading:
            named = zip(self._columns[1:-1], cells[1:-1], strict=True)
            yield f"{self._columns[0]} ", cells[0]
            yield GAP, ", ".join(f"{name} {cell}" for name, cell in named if cell)
        if cells[-1] and not is_heading:
            yield GAP, f"{self._columns[-1].lower()}: {cells[-1]}"

    def _line(self, cells: Sequence[str], widths: Sequence[int], columns: range) -> str:
        """Return the cells of some columns, each as wide as its column."""
        padded = []
        for column in columns:
            pad = " " * (widths[column] - cell_len(cells[column]))
            padded.append(pad + cells[column] if self._right[column] else cells[column] + pad)
        return GAP.join(padded)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(0, len(widths) - 1)


def _hanging(console: Console, width: int, start: str, text: str, style: str) -> Iterator[Text]:
    """Yield the lines of a text that is wrapped after `start`, and indented by its width."""
    indent = " " * cell_len(start)
    # Folded: a word that is longer than the line is continued, not cut off.
    for line in Text(text).wrap(console, max(1, width - len(indent)), overflow="fold") or [Text()]:
        yield Text((start + line.plain).rstrip(), style)
        start = indent
