"""Tables for notebooks, which call the `_repr_html_` of the result of a cell."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


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
    # `pre` keeps the leading spaces, by which inputs are indented.
    style = "text-align: left; white-space: pre"
    inner = "".join(f'<{tag} style="{style}">{escape(str(cell))}</{tag}>' for cell in cells)
    return f"<tr>{inner}</tr>"


class Stats(dict[str, Any]):
    """A dict; of lists of dicts, such as the stages, a notebook shows a table each."""

    def _repr_html_(self) -> str:
        lists = {name: value for name, value in self.items() if isinstance(value, list)}
        single = [(name, value) for name, value in self.items() if name not in lists]
        tables = [html_table(("statistic", "value"), single)]
        for name, entries in lists.items():
            columns = dict.fromkeys(key for entry in entries for key in entry)
            rows = [("", *(entry.get(key, "") for key in columns)) for entry in entries]
            tables.append(html_table((name, *columns), rows))
        return "".join(tables)
