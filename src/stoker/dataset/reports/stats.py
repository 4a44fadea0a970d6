"""The statistics of an iterator, as a dict that notebooks show as tables."""

from typing import Any

from stoker.dataset.reports.html_table import html_table


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
