"""Imports go down the layers only.

    errors < dataset < wire < service < cluster, adapters < cli

Read from the source with `ast`, imports inside functions included.
"""

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "stoker"

LAYERS = {
    "errors": 0,
    "dataset": 1,
    "wire": 2,
    "service": 3,
    "cluster": 4,
    "torch": 4,
    "jax": 4,
    "keras": 4,
    "compat": 4,
    "cli": 5,
}
"""A module or package directly under `stoker`, and how high it stands."""

ADAPTERS = {"torch", "jax", "keras"}
"""These need a framework that is not installed for the tests."""

FACADE = {"stoker", "stoker.__main__", "stoker.random"}
"""These gather the layers' names for users and may import from all of them."""

HEAVY = ("grpc", "grpclib", "asyncio", "fsspec", "typer", "rich", "cloudpickle", "PIL")
"""What `import stoker` must not load."""


@dataclass(frozen=True)
class Import:
    """One import statement: who, of what, where, and in which function."""

    importer: str
    imported: str
    line: int
    function: str


def imports_of(source: str, importer: str, *, package: bool = False) -> list[Import]:
    """Every import of a stoker module in `source`, by absolute name."""
    found: list[Import] = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}" if function else node.name
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, importer, package)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            names = []
        found.extend(
            Import(importer, name, node.lineno, function)  # type: ignore[attr-defined]
            for name in names
            if name.split(".")[0] == "stoker"
        )
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return found


def _absolute(node: ast.ImportFrom, importer: str, package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = importer.split(".")
    base = parts[: len(parts) - node.level + package]
    return ".".join([*base, node.module] if node.module else base)


def layer_of(module: str) -> int | None:
    """The layer of `stoker.x.y`: that of x; `None` for the package's own names."""
    parts = module.split(".")
    return LAYERS.get(parts[1]) if len(parts) > 1 else None


def _sources() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def upward(imports: list[Import]) -> list[Import]:
    """The imports that go up, or that reach for the facade from below it."""
    return [
        entry
        for entry in imports
        if entry.importer not in FACADE and _above(entry.imported, entry.importer)
    ]


def _above(imported: str, importer: str) -> bool:
    theirs, mine = layer_of(imported), layer_of(importer)
    if theirs is None or mine is None:
        return mine is None or mine < max(LAYERS.values())
    return theirs > mine


def _all_imports() -> list[Import]:
    return [
        entry
        for module, path in _sources().items()
        for entry in imports_of(path.read_text(), module, package=path.stem == "__init__")
    ]


def test_every_module_belongs_to_a_layer():
    assert [m for m in _sources() if m not in FACADE and layer_of(m) is None] == []


def test_imports_go_down_but_for_distribute():
    """`Dataset.distribute` imports the service when called: the one exception."""
    found = upward(_all_imports())
    assert [(i.importer, i.function, i.imported) for i in found] == [
        ("stoker.dataset.dataset", "Dataset.distribute", "stoker.service.distribute")
    ], "\n".join(f"{i.importer}:{i.line} imports {i.imported}" for i in found)


@pytest.mark.parametrize(
    ("source", "importer", "imported"),
    [
        ("import stoker.service.rpc", "stoker.wire.frames", ["stoker.service.rpc"]),
        ("def f():\n    from stoker.cli import main", "stoker.cluster", ["stoker.cli.main"]),
        ("from ..wire import codec", "stoker.dataset.node", ["stoker.wire.codec"]),
        ("from stoker import Dataset", "stoker.service.distribute", ["stoker.Dataset"]),
        ("import stoker", "stoker.errors", ["stoker"]),
        ("from stoker.errors import StokerError", "stoker.dataset.node", []),
        ("from . import node", "stoker.dataset.execute", []),
        ("import stoker", "stoker.cli.demo.pipeline", []),
        ("from stoker import Dataset", "stoker.cli.demo.pipeline", []),
    ],
)
def test_the_reader_of_imports_sees_what_goes_up(source, importer, imported):
    assert [entry.imported for entry in upward(imports_of(source, importer))] == imported


def test_importing_stoker_loads_nothing_heavy():
    code = f"import sys, stoker; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_names_of_other_libraries_are_loaded_on_demand_and_without_them():
    code = (
        "import sys, stoker; print('stoker.compat' in sys.modules);"
        "from stoker.compat import tf; print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_every_module_can_be_imported_first():
    """No import cycle hides behind the order in which a test run happens to import."""
    modules = [name for name in _sources() if name != "stoker.__main__" and not _is_adapter(name)]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, *modules], capture_output=True, text=True
    )
    assert done.stdout == "", done.stdout


IMPORT_EACH = """
import os, sys, importlib, traceback
import asyncio, cloudpickle, grpclib.client, grpclib.server  # others', once
import stoker  # whatever module of a package is imported, the package comes first
running = set()
for name in sys.argv[1:]:
    if len(running) == os.cpu_count():
        running.discard(os.wait()[0])
    if (pid := os.fork()) == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            print(name, traceback.format_exc(), flush=True)
        os._exit(0)
    running.add(pid)
for pid in running:
    os.waitpid(pid, 0)
"""


def _is_adapter(module: str) -> bool:
    return module.split(".")[1:2] != [] and module.split(".")[1] in ADAPTERS
