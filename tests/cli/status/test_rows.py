"""Tables of any width."""

import io
from operator import itemgetter
from typing import Any

import pytest
from rich.console import Console

from stoker.cli.status.rows import Rows, TableSpec, output_console


def lines(rows: Rows, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(rows)
    return file.getvalue().splitlines()


def example() -> Rows:
    items = [
        ("a-long-name", "0", "running", "the pipeline limits training " * 2),
        ("b", "12", "failed", ""),
    ]
    columns = ("JOB", ">EPOCH", "STATE", "WHAT IS SLOW")
    cells = {name: itemgetter(number) for number, name in enumerate(columns)}
    return Rows(items, TableSpec[Any](cells, note=lambda item: "no such file" * (item[0] == "b")))


def test_a_table_that_fits_has_a_line_for_each_row():
    assert lines(example(), 100) == [
        "JOB          EPOCH  STATE    WHAT IS SLOW",
        "a-long-name      0  running  the pipeline limits training the pipeline limits training",
        "b               12  failed",
        "  no such file",
    ]


def test_a_long_last_cell_is_wrapped_beside_the_others():
    assert lines(example(), 70) == [
        "JOB          EPOCH  STATE    WHAT IS SLOW",
        "a-long-name      0  running  the pipeline limits training the pipeline",
        "                             limits training",
        "b               12  failed",
        "  no such file",
    ]


def test_a_last_cell_without_room_is_below_its_row():
    assert lines(example(), 45) == [
        "JOB          EPOCH  STATE",
        "a-long-name      0  running",
        "  what is slow: the pipeline limits training",
        "  the pipeline limits training",
        "b               12  failed",
        "  no such file",
    ]


def test_a_first_cell_without_room_is_above_its_row():
    assert lines(example(), 20)[:5] == [
        "JOB",
        "  EPOCH  STATE",
        "a-long-name",
        "      0  running",
        "  what is slow: the",
    ]


def test_cells_that_fit_in_no_row_are_a_list():
    assert lines(example(), 15)[:4] == [
        "JOB a-long-name",
        "  EPOCH 0,",
        "  STATE running",
        "  what is slow:",
    ]


def test_only_a_terminal_and_the_variable_limit_the_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert not output_console().is_terminal
    assert output_console().width == 10_000
    monkeypatch.setenv("COLUMNS", "80")
    assert output_console().width == 80


@pytest.mark.parametrize("width", range(1, 110))
def test_no_width_loses_a_word(width: int):
    shown = "".join("".join(line.split()) for line in lines(example(), width))
    for word in ("a-long-name", "running", "failed", "nosuchfile"):
        assert word in shown
    assert shown.count("limits") == 2
    assert max(map(len, lines(example(), width))) <= max(width, 1)
