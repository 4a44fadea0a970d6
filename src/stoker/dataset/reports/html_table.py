"""Tables for notebooks, which call the `_repr_html_` of what a cell returns."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    header: Sequence[object], rows: Iterable[Sequence[object]], sentence: str = ""
) -> str:
    """Return a table as HTML; all texts are escaped.

    Args:
        header: the names of the columns.
        rows: the cells; leading spaces are shown.
        sentence: text below the table.
    """
    lines = [_row("th", header), *(_row("td", row) for row in rows)]
    below = f"<p>{escape(sentence)}</p>" if sentence else ""
    return f"<table>{''.join(lines)}</table>{below}"


def _row(tag: str, cells: Sequence[object]) -> str:
    style = "text-align: left; white-space: pre"
    inner = "".join(f'<{tag} style="{style}">{escape(str(cell))}</{tag}>' for cell in cells)
    return f"<tr>{inner}</tr>"
