"""docs/configuration.md lists every option with its default and its text."""

import re
from pathlib import Path

import pytest

from stoker.cli.options.options import TABLES, Option, flag_of
from stoker.cli.options.units import SIZE, TIME
from stoker.cli.options.values import read_values
from stoker.service import DispatcherConfig, WorkerConfig

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def row(option: Option) -> str:
    alias = f" (also `{flag_of(option.alias)}`)" if option.alias else ""
    default = "required" if option.required else option.shown_default
    return f"| `{option.name}` | {default} | {option.help}{alias} |"


@pytest.mark.parametrize("table", list(TABLES))
def test_the_page_has_a_row_for_each_option(table):
    section = PAGE.read_text().partition(f"## stoker {table}\n")[2].partition("\n## ")[0]
    found = [line for line in section.splitlines() if line.startswith("| `")]
    expected = [row(option) for option in TABLES[table]]
    assert found == expected, "write:\n" + "\n".join(expected)


def test_the_page_lists_the_units():
    text = PAGE.read_text()
    for quantity in (TIME, SIZE):
        assert ", ".join(f"`{unit}`" for unit in quantity.units) in text


def test_the_example_file_is_valid(tmp_path):
    [example] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "stoker.toml"
    path.write_text(example)
    for table, cls in (("dispatcher", DispatcherConfig), ("worker", WorkerConfig)):
        read_values(table, {}, str(path), {}).build(cls)
