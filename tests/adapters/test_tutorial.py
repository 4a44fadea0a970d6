"""The tutorial runs from its first cell to its last, and is committed with its output."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.docs.session import ROOT

TUTORIAL = ROOT / "docs" / "tutorial.ipynb"


@pytest.mark.timeout(300)
def test_every_cell_runs(tmp_path: Path):
    # In a process of its own, since the client of a kernel leaves its event loop open.
    run = Path(sys.executable).with_name("jupyter-execute")
    command: list[str | Path] = [run, "--output", tmp_path / "executed", TUTORIAL]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_committed_output_is_that_of_one_run():
    cells = [c for c in nbformat.read(TUTORIAL, as_version=4).cells if c.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
