"""`benchmarks/compare.py`: two checkouts measured against each other."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
PUBLIC = {"stoker", "stoker.service", "stoker.compat", "stoker.errors"}
COLUMNS = ["row", "unit", "old", "new", "new/old", "lowest", "highest", "CPU", "verdict"]


def run(*words):
    command = [sys.executable, str(BENCHMARKS / "compare.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("compare")
    for name in ("compare", "harness"):
        sys.modules.pop(name, None)


def test_two_checkouts_give_a_table(tmp_path):
    figures = tmp_path / "figures.json"
    few = ["--rows", "elements/range", "--pairs", "1", "--seconds", "0.05", "--json", figures]
    result = run(ROOT, ROOT, *few)
    heading, columns, rule, row = result.stdout.splitlines()
    assert "medians of 1 pairs" in heading
    assert cells(columns) == COLUMNS
    assert set(rule) <= set("| -")
    name, unit, old, new, *ratios, verdict = cells(row)
    assert (name, unit) == ("elements/range", "/s")
    assert int(old.replace(",", "")) > 0
    assert int(new.replace(",", "")) > 0
    assert len({float(ratio) for ratio in ratios[:3]}) == 1  # of one pair
    assert result.returncode == bool(verdict)
    [measured] = json.loads(figures.read_text())
    assert len(measured["pairs"]) == 1


def test_a_failing_row_is_reported(tmp_path):
    broken = tmp_path / "src" / "stoker"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()
    result = run(tmp_path, ROOT, "--rows", "elements/range", "--pairs", "1", "--seconds", "0.05")
    assert result.returncode == 1
    assert cells(result.stdout.splitlines()[-1])[-1].startswith("not measured: old: rows.py ended")


def test_a_folder_without_stoker_is_refused(tmp_path):
    result = run(tmp_path)
    assert result.returncode == 2
    assert "is no checkout of stoker" in result.stderr


def test_an_unknown_row_is_refused():
    result = run(ROOT, "--rows", "nothing/like/it")
    assert result.returncode == 1
    assert "no row matches 'nothing/like/it'" in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ((100, "/s", 1.0), (94, "/s", 1.0), "slower: wall"),
        ((100, "/s", 1.0), (94, "/s", 1.1), "slower"),
        ((100, "/s", 1.0), (94, "/s", float("nan")), "slower"),
        ((100, "/s", 1.0), (96, "/s", 1.04), ""),
        ((100, "/s", 1.0), (120, "/s", 1.1), "slower: CPU"),
        ((1.0, "ms", 1.0), (1.1, "ms", 1.0), "slower: wall"),
        ((1.0, "ms", 1.0), (0.9, "ms", 1.0), ""),
    ],
)
def test_a_row_below_95_percent_is_slower(compare, old, new, verdict):
    pairs = [(compare.Figure(*old), compare.Figure(*new))]
    assert compare.Comparison("row", 1.0, pairs).verdict() == verdict


def test_rows_are_selected_by_part_or_pattern(compare):
    rows = [{"name": name, "default": name != "a/c"} for name in ("a/b", "a/c", "b/c")]

    def selected(*patterns):
        return [row["name"] for row in compare.selected(rows, list(patterns))]

    assert selected() == ["a/b", "b/c"]
    assert selected("C") == ["a/c", "b/c"]
    assert selected("a/c", "a/b") == ["a/b", "a/c"]
    assert selected("a/*", "b/c") == ["a/b", "a/c", "b/c"]


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.name)
def test_benchmarks_import_only_public_names(path):
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    internal = {m for m in modules if m and m.startswith("stoker")} - PUBLIC
    # Photographs are made by the demo; once made, they are only read.
    assert internal <= ({"stoker.cli.demo.images"} if path.name == "bench_jpeg.py" else set())
