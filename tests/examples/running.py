"""The examples, and their commands for one machine."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.session import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
_FRAMEWORKS = ("torch", "jax", "keras", "hugging_face")

PLAIN = [path for path in EXAMPLES if not any(name in path.stem for name in _FRAMEWORKS)]
"""The examples that need no framework."""

WITH_FRAMEWORKS = [path for path in EXAMPLES if path not in PLAIN]


def header_of(path: Path) -> list[str]:
    """Return the lines of an example's docstring that are not blank."""
    return [
        line for line in (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n") if line
    ]


def run(path: Path, directory: Path) -> str:
    """Run an example as its header says, in an empty directory, and return its output."""
    [command] = re.findall(r"^One machine: (.*)$", "\n".join(header_of(path)), re.MULTILINE)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", command.replace("examples/", f"{ROOT}/examples/")],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
