"""The snippets in README, CONTRIBUTING and docs/ run, and so do the docstrings' examples."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import stoker
from tests.docs.session import ROOT, Session, SnippetFailedError
from tests.docs.snippets import Snippet, commands_of, snippets_of

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCE = ROOT / "src"
ADAPTERS = {
    *(
        SOURCE / "stoker" / f"{name}.py"
        for name in ("jax", "keras", "tensorflow", "hugging_face", "grain")
    ),
    *(SOURCE / "stoker" / "torch").rglob("*.py"),
}
"""Modules that need a framework; tests/adapters runs their examples."""

MODULES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text() and path not in ADAPTERS
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_snippet_runs(path: Path):
    with Session(str(path.relative_to(ROOT))) as session:
        for snippet in snippets_of(path.read_text()):
            if not snippet.framework:  # tests/adapters runs the others
                session.run(snippet)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstring_examples_run(path: Path):
    run_examples(path)


def run_examples(path: Path) -> None:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    names = {"stoker": stoker, "Dataset": stoker.Dataset}
    result = doctest.testmod(module, extraglobs=names, optionflags=flags, report=True)
    assert result.attempted > 0
    assert result.failed == 0


NAMED_FILE = re.compile(r"`([\w./]+\.py)`(?:\s+`(\w+)(?:\.(\w+))?`)?")
"""A file in backticks, and the name in backticks after it, such as `a/b.py` `Class.method`."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist_and_define_the_names(path: Path):
    files = [
        file for folder in ("src", "tests", "benchmarks") for file in ROOT.glob(f"{folder}/**/*.py")
    ]
    wrong = []
    for name, *identifiers in NAMED_FILE.findall(path.read_text()):
        found = [file for file in files if f"/{file.relative_to(ROOT)}".endswith(f"/{name}")]
        defined = [
            file
            for file in found
            if all(re.search(rf"\b{x}\b", file.read_text()) for x in identifiers if x)
        ]
        if not defined and ROOT / name not in files:
            wrong.append((name, *identifiers))
    assert wrong == []


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
"""A link to another file here, to a heading of it, or to a heading of the same file."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(path: Path):
    wrong = []
    for name, anchor in LINK.findall(path.read_text()):
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text())):
            wrong.append(f"{name}#{anchor}")
    assert wrong == []


def anchors_of(markdown: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_anchors_are_those_of_github():
    text = "# PyTorch's own `DataLoader`: a note\n## Two, of 3\n"
    assert anchors_of(text) == {"pytorchs-own-dataloader-a-note", "two-of-3"}


MARKDOWN = """
```python
x = 1
```
- in a list:
  ```console
  $ echo one \\
        two
  output
  $ echo three
  ```
```text
not code
```
"""


def test_snippets_are_found_with_their_lines():
    assert snippets_of(MARKDOWN) == [
        Snippet("python", "x = 1\n", 3),
        Snippet("console", "$ echo one \\\n      two\noutput\n$ echo three\n", 7),
    ]


def test_commands_follow_the_prompt():
    assert commands_of("$ a \\\n  b\nout\n$ c\n") == ["a    b", "c"]
    assert commands_of("# comment\na\nb\n") == ["a", "b"]


@pytest.mark.parametrize(
    ("markdown", "message"),
    [("```python\nx", "line 1: .* never ends"), ("```pyton\n```", "'pyton' is to be executed")],
)
def test_unterminated_or_unknown_block_is_refused(markdown, message):
    with pytest.raises(ValueError, match=message):
        snippets_of(markdown)


def test_python_snippets_share_a_namespace():
    with Session("page.md") as session:
        session.run(Snippet("python", "x = 1\n", 3))
        with pytest.raises(SnippetFailedError, match=r'(?s)page\.md:10.*page\.md", line 11'):
            session.run(Snippet("python", "x += 1\nassert x == 3\n", 10))


def test_failing_command_is_named():
    with (
        Session("page.md") as session,
        pytest.raises(SnippetFailedError, match=r"page\.md:5: exit code 3 from 'exit 3'"),
    ):
        session.run(Snippet("console", "$ exit 3\n", 5))


def test_unknown_make_target_is_named():
    with (
        Session("page.md") as session,
        pytest.raises(SnippetFailedError, match="No rule to make target"),
    ):
        session.run(Snippet("console", "$ make nothing\n", 1))
