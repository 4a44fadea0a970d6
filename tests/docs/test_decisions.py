"""Each decision is listed, and named by a comment at the line that it explains."""

import re

from tests.docs.session import ROOT

DECISIONS = {path.name[:3]: path.name for path in (ROOT / "docs/decisions").glob("[0-9]*.md")}
CITED = re.compile(r"decisions/(\d{3})")


def cited() -> set[str]:
    """Return the numbers of the decisions that the source or the simulation names."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests/simulation").glob("*.py")]
    return {number for file in files for number in CITED.findall(file.read_text())}


def test_each_decision_is_named_at_a_line_and_each_name_has_a_file():
    assert cited() == set(DECISIONS)


def test_each_decision_is_listed():
    index = (ROOT / "docs/decisions/README.md").read_text()
    assert sorted(re.findall(r"\]\((\d{3}-[^)]*)\)", index)) == sorted(DECISIONS.values())
