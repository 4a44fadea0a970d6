"""docs/tensorflow-tests.md: every row has a test that exists, or a reason."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.docs.session import ROOT

DOCUMENT = ROOT / "docs" / "tensorflow-tests.md"
TESTS = ROOT / "tests"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")

NUMBERS = {
    "auto_shard_test": 32,
    "coordinated_read_test": 6,
    "coordinated_read_ft_test": 3,
    "cross_trainer_cache_test": 19,
    "cross_trainer_cache_ft_test": 2,
    "data_service_ops_test": 66,
    "distributed_save_test, distributed_save_ft_test, distributed_save_load_test, "
    "distributed_save_load_ft_test": 56,
    "dynamic_sharding_test": 28,
    "fault_tolerance_test": 16,
    "gpu_test": 1,
    "local_workers_test": 20,
    "metadata_test": 7,
    "multi_device_test": 2,
    "multi_process_cluster_test": 2,
    "worker_tags_test": 10,
}
"""The number of tests in each of TensorFlow's files."""


class Row(NamedTuple):
    """A row of a table: TensorFlow's file and tests, and stoker's."""

    file: str
    theirs: list[str]
    asserts: str
    ours: str


def rows() -> Iterator[Row]:
    """Yield the rows of all tables of the document."""
    file = ""
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("## "):
            file = line.removeprefix("## ")
        elif line.startswith("| test"):
            theirs, asserts, ours = (cell.strip() for cell in line.strip("|").split(" | "))
            yield Row(file, theirs.split(", "), asserts, ours)


@cache
def functions_in(path: Path) -> set[str]:
    """Return the names of the test functions that a module defines."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {x.name for x in nodes if isinstance(x, ast.FunctionDef) and x.name.startswith("test_")}


def test_all_tests_of_tensorflow_are_listed():
    assert Counter(row.file for row in rows() for _ in row.theirs) == NUMBERS


def test_every_row_has_a_test_or_a_reason():
    bare = [row for row in rows() if not row.asserts or not NAMED.search(row.ours)]
    assert [x for x in bare if not re.match(r"none: \w", x.ours)] == []


def test_every_named_test_exists():
    named = [found for row in rows() for found in NAMED.findall(row.ours)]
    assert len(named) > 100
    missing = [
        (path, name)
        for path, name in named
        if not (TESTS / path).is_file() or name not in functions_in(TESTS / path)
    ]
    assert missing == []
