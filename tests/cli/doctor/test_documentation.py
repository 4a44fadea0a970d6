"""docs/doctor.md lists every kind of finding with its level and its fix."""

import re

import pytest

from stoker.cli.doctor.findings import KINDS, FindingKind, Level
from tests.cli.doctor.staging import DOCUMENT

TITLES = {
    "dispatcher": "Faults of the dispatcher's address",
    "workers": "Faults of workers",
    "machine": "This machine",
}


def row(name: str, kind: FindingKind) -> tuple[str, str, str]:
    """Return the cells of a kind of finding; the values of a check are an ellipsis."""
    return name, kind.level.value, re.sub(r"\{[^}]*\}", "…", kind.fix)


@pytest.mark.parametrize("table", list(KINDS))
def test_the_page_has_a_row_for_each_kind_of_finding(table):
    section = DOCUMENT.read_text().partition(f"## {TITLES[table]}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `([a-z-]+)` \| ([a-z ]+) \| .+ \| (.*) \|$", section, re.MULTILINE)
    kinds = KINDS[table].items()
    assert found == [row(name, kind) for name, kind in kinds if kind.level is not Level.OK]
