"""Every example says what it shows and how it is run, and runs."""

import re
from pathlib import Path

import pytest

from tests.docs.session import ROOT
from tests.examples.running import EXAMPLES, PLAIN, header_of, run


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_header_says_what_it_shows_and_how_it_runs(path: Path):
    summary, *lines = header_of(path)
    assert summary.endswith(".")
    assert len(lines) == 4
    assert [line.partition(":")[0] for line in lines[:3]] == ["Shows", "One machine", "Several"]
    assert f"examples/{path.name}" in lines[1]


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_example_runs_on_one_machine(path: Path, tmp_path: Path):
    assert run(path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_page_lists_all_examples():
    page = (ROOT / "examples" / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+\.py)\)", page)) == {path.name for path in EXAMPLES}
