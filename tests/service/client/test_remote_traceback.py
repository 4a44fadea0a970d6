"""In notebooks, errors name the cell, and the program adds the lines that a worker lacks."""

import linecache
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stoker import Dataset
from stoker.errors import ErrorRecord
from stoker.service.client.remote_traceback import with_source_lines

CELL = "/tmp/ipykernel_16206/4198545302.py"
SOURCE = "def fails(x):\n    return 1 // x\ndataset = Dataset.range(3).map(fails)\n"


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of IPython that know the cells that it ran."""

    def format_code_name(name: str) -> tuple[str, str] | None:
        return ("Cell", "In[12]") if name == CELL else None

    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=format_code_name))
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    lines = SOURCE.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, CELL, (len(SOURCE), None, lines, CELL))


def test_a_dataset_of_a_cell_has_the_cell_as_its_site(notebook: None) -> None:
    names: dict[str, Any] = {"Dataset": Dataset}
    exec(compile(SOURCE, CELL, "exec"), names)
    assert names["dataset"].node.site == "Cell In[12], line 3"
    assert Dataset.range(3).node.site.startswith("tests/service/client/test_remote_traceback.py:")


TRACEBACK = f"""\
Traceback (most recent call last):
  File "{CELL}", line 2, in fails
  File "/usr/lib/other.py", line 5, in helps
    helped = 3
  File "{CELL}.gone", line 7, in lost
ZeroDivisionError: integer division or modulo by zero
"""


def shown(text: str) -> str:
    record = with_source_lines(ErrorRecord("UserFunctionError", "m", remote_traceback=text))
    return record.remote_traceback


def test_frames_without_lines_get_those_of_the_program(notebook: None) -> None:
    text = TRACEBACK.replace(f'File "{CELL}", line 2', "Cell In[12], line 2")
    assert shown(TRACEBACK) == text.replace("fails\n", "fails\n    return 1 // x\n")


def test_without_a_notebook_a_file_keeps_its_name(
    notebook: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "IPython")
    assert shown(TRACEBACK) == TRACEBACK.replace("fails\n", "fails\n    return 1 // x\n")
    assert shown("") == ""
