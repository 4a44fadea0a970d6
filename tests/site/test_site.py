"""The built site documents every public name and needs no other host."""

import ast
import re
from pathlib import Path

import pytest

import stoker
from tests.docs.session import ROOT

SITE = ROOT / "build" / "site"
REFERENCE = {
    name: path
    for path in sorted((ROOT / "docs" / "reference").glob("*.md"))
    for name in re.findall(r"^::: (\S+)", path.read_text(), re.MULTILINE)
}
"""The public modules, each with the page that documents it."""


def file_of(module: str) -> Path:
    path = ROOT / "src" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public_names(module: str) -> list[str]:
    """Return `__all__`, without importing a module that needs a framework."""
    tree = ast.parse(file_of(module).read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]


@pytest.mark.parametrize("module", REFERENCE)
def test_every_public_name_is_on_its_page(module: str):
    page = (SITE / REFERENCE[module].relative_to(ROOT).with_suffix(".html")).read_text()
    anchors = set(re.findall(r'id="([\w.]+)"', page))
    names = [
        name
        for name in public_names(module)
        if f"{module}.{name}" not in REFERENCE and not name.startswith("__")
    ]
    missing = [name for name in names if f"{module}.{name}" not in anchors]
    # A function with the name of its file is documented under the file's.
    assert [name for name in missing if f"{module}.{name}.{name}" not in anchors] == []


def test_every_method_of_a_dataset_is_on_its_page():
    page = (SITE / "docs" / "reference" / "stoker.html").read_text()
    methods = [name for name in dir(stoker.Dataset) if not name.startswith("_")]
    assert [name for name in methods if f'id="stoker.Dataset.{name}"' not in page] == []


def test_pages_load_nothing_from_another_host():
    for path in SITE.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"?(https?:[^\"> ]+)", path.read_text()
        )
        assert [url for url in loaded if "stoker.example" not in url] == [], path


def test_search_finds_the_reference():
    index = (SITE / "search" / "search_index.json").read_text()
    assert "docs/reference/stoker.html#stoker.Dataset.map" in index
