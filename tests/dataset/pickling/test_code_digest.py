"""Digests of functions: equal for equal code, wherever it stands."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.dataset.pickling.code_digest import inspect_code

SCRIPT = """
TABLE = {"a": [1, 2]}
class Model:
    def scale(self, x):
        return x * FACTOR
model = Model()
def function(x):
    try:
        return model.scale(x) + len(TABLE["a"])
    except ValueError:
        return [y for y in x if y]
from stoker.dataset.pickling.code_digest import inspect_code
print(inspect_code(function).digest)
"""


def _digest_of_script(path: Path, text: str) -> str:
    path.write_text(text)
    command = [sys.executable, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_it_is_equal_in_every_process_and_on_every_line(tmp_path: Path) -> None:
    script = SCRIPT.replace("FACTOR", "3")
    first = _digest_of_script(tmp_path / "one.py", script)
    assert _digest_of_script(tmp_path / "other.py", "\n# a comment\n" + script) == first


@pytest.mark.parametrize(
    ("old", "new"), [("FACTOR", "4"), ('"a": [1, 2]', '"a": [1, 3]'), ("ValueError", "KeyError")]
)
def test_it_changes_with_all_the_function_uses(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "script.py"
    first = _digest_of_script(path, SCRIPT.replace("FACTOR", "3"))
    assert _digest_of_script(path, SCRIPT.replace(old, new).replace("FACTOR", "3")) != first


def test_it_changes_with_a_captured_array() -> None:
    def function_with(array: np.ndarray[Any, Any]) -> Any:
        return lambda x: array[x]

    zeros, ones = np.zeros(100_000), np.ones(100_000)
    digest = inspect_code(function_with(zeros)).digest
    assert inspect_code(function_with(zeros.copy())).digest == digest
    assert inspect_code(function_with(ones)).digest != digest


def test_it_does_not_depend_on_loaded_submodules(tmp_path: Path) -> None:
    script = """
import sys, xml
def function(x):
    return xml.etree.ElementTree.fromstring(x)
from stoker.dataset.pickling.code_digest import inspect_code
{}
print(inspect_code(function).digest)
"""
    without = _digest_of_script(tmp_path / "one.py", script.format(""))
    loaded = _digest_of_script(tmp_path / "other.py", script.format("import xml.etree.ElementTree"))
    assert loaded == without


def test_it_leaves_the_drawn_seeds_of_a_captured_dataset_out(tmp_path: Path) -> None:
    script = (
        "import stoker\n"
        "from stoker.dataset.pickling.code_digest import inspect_code\n"
        "captured = stoker.Dataset.range(3).shuffle(BUFFER)\n"
        "print(inspect_code(lambda _: captured).digest)\n"
    )
    path = tmp_path / "script.py"
    first = _digest_of_script(path, script.replace("BUFFER", "3"))
    assert _digest_of_script(path, script.replace("BUFFER", "3")) == first
    assert _digest_of_script(path, script.replace("BUFFER", "4")) != first
