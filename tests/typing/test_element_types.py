"""Datasets, iterators and loaders are generic in their elements, as a type checker follows."""

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.session import ROOT

FILE = Path(__file__).with_name("elements.py")


def test_mypy_reveals_the_types_of_elements() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-color-output", "--show-column-numbers", str(FILE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    revealed = {
        int(line): _short(kind)
        for line, kind in re.findall(r":(\d+):\d+: note: Revealed type is \"(.*)\"", done.stdout)
    }
    expected = {
        number: line.rpartition("  # ")[2]
        for number, line in enumerate(FILE.read_text().splitlines(), 1)
        if "reveal_type(" in line and "  # " in line
    }
    assert len(expected) >= 20
    assert revealed == expected


def _short(kind: str) -> str:
    """Return a type without the modules of its names."""
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", kind)
