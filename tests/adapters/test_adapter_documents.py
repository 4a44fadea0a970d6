"""The snippets that need a framework run, and so do the examples of the adapters' docstrings."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.session import ROOT, Session
from tests.docs.snippets import snippets_of
from tests.docs.test_documents import ADAPTERS, DOCUMENTS, SOURCE

WITH_FRAMEWORKS = [
    path
    for path in DOCUMENTS
    if any(snippet.framework for snippet in snippets_of(path.read_text()))
]
EXAMPLES = [path for path in sorted(ADAPTERS) if ">>> " in path.read_text()]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", WITH_FRAMEWORKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_snippet_runs(path: Path):
    with Session(str(path.relative_to(ROOT))) as session:
        for snippet in snippets_of(path.read_text()):
            if snippet.framework and importlib.util.find_spec(snippet.framework) is None:
                pytest.skip(f"{snippet.framework} is not installed")
            session.run(snippet)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstring_examples_run(path: Path):
    """In a process of its own: threads of JAX and others outlive the examples."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


RUN = """
import pathlib, sys
from tests.docs.test_documents import run_examples
run_examples(pathlib.Path(sys.argv[1]))
"""
