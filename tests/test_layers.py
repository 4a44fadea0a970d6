"""Imports go down the layers only, and no files import each other in a circle.

    errors, lazy_names, version < elements < wire, dataset < service
        < cluster, compat, adapters, testing
        < torch, jax, tensorflow, hugging_face, grain < keras < cli

Imports are read from the source with `ast`, those inside functions and under TYPE_CHECKING
included. `wire` and `dataset` do not import each other.
"""

import ast
import inspect
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import stoker
import stoker.service

ROOT = Path(__file__).parents[1] / "src" / "stoker"

LAYERS = {
    "errors": 0,
    "version": 0,
    "lazy_names": 0,
    "elements": 1,
    "dataset": 2,
    "wire": 2,
    "service": 3,
    "cluster": 4,
    "compat": 4,
    "adapters": 4,
    "testing": 4,
    "torch": 5,
    "jax": 5,
    "tensorflow": 5,
    "hugging_face": 5,
    "grain": 5,
    "keras": 6,
    "cli": 7,
}
"""The modules and packages directly under `stoker`, with their layer."""

INDEPENDENT = {"dataset", "wire"}
"""Packages of one layer that must not import each other."""

ADAPTERS = {"torch", "jax", "tensorflow", "hugging_face", "grain", "keras"}
"""Modules that need a framework; `make test-adapters` installs it."""

FACADE = {"stoker", "stoker.__main__", "stoker.random"}
"""Modules that gather the names of all layers for users and may import from any of them."""

FRAMEWORKS = ("torch", "jax", "keras", "tensorflow", "datasets", "grain")
"""Modules that only the adapter of their name may import."""

HEAVY = ("grpc", "grpclib", "asyncio", "fsspec", "typer", "rich", "cloudpickle", "PIL")
"""Modules that the names of `stoker` must not load."""


@dataclass(frozen=True)
class Import:
    """One import statement, with its line and the function it is in."""

    importer: str
    imported: str
    line: int
    function: str


def imports_of(source: str, importer: str, *, package: bool = False) -> list[Import]:
    """Return the imports of stoker modules in `source`, by absolute name."""
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


def package_of(module: str) -> str:
    """Return the `x` of `stoker.x.y`; empty for the names of `stoker` itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def layer_of(module: str) -> int | None:
    """Return the layer of `stoker.x.y`, that of x; `None` for the names of `stoker` itself."""
    return LAYERS.get(package_of(module))


def _sources() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def upward(imports: list[Import]) -> list[Import]:
    """Return the imports that go up, or that import the facade from below it."""
    return [
        entry
        for entry in imports
        if entry.importer not in FACADE and _above(entry.imported, entry.importer)
    ]


def _above(imported: str, importer: str) -> bool:
    theirs, mine = layer_of(imported), layer_of(importer)
    if theirs is None or mine is None:
        return mine is None or mine < max(LAYERS.values())
    packages = {package_of(imported), package_of(importer)}
    return theirs > mine or packages == INDEPENDENT


def _all_imports() -> list[Import]:
    return [
        entry
        for module, path in _sources().items()
        for entry in imports_of(path.read_text(), module, package=path.stem == "__init__")
    ]


def circles(imports: list[Import], modules: set[str]) -> list[set[str]]:
    """Return the sets of modules that import each other, directly or through others."""
    edges: dict[str, set[str]] = {module: set() for module in modules}
    for entry in imports:
        parent = entry.imported.rpartition(".")[0]
        target = entry.imported if entry.imported in modules else parent
        if {target, entry.importer} <= modules and target != entry.importer:
            edges[entry.importer].add(target)
    reachable = {module: _reachable(module, edges) for module in modules}
    found = {
        frozenset(other for other in reachable[module] if module in reachable[other])
        for module in modules
    }
    return sorted((set(circle) for circle in found if circle), key=len)


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    stack = [start]
    while stack:
        for module in edges[stack.pop()] - found:
            found.add(module)
            stack.append(module)
    return found


def test_every_module_belongs_to_a_layer():
    assert [m for m in _sources() if m not in FACADE and layer_of(m) is None] == []


def test_imports_go_down_except_in_distribute():
    """`Dataset.distribute` imports the service when called: the one exception."""
    found = [entry for entry in upward(_all_imports()) if not _is_signature(entry)]
    assert [(i.importer, i.function, i.imported) for i in found] == [
        ("stoker.dataset.dataset", "Dataset.distribute", f"stoker.service.api.{name}")
        for name in ("default_mode.default_mode", "distribution.distribute")
    ], "\n".join(f"{i.importer}:{i.line} imports {i.imported}" for i in found)


def test_signatures_of_dataset_methods_name_the_public_class():
    """Only type checkers read these imports. (docs/decisions/100)"""
    found = [entry for entry in upward(_all_imports()) if _is_signature(entry)]
    assert {entry.imported for entry in found} == {"stoker"}
    assert all("TYPE_CHECKING" in _statement_above(entry) for entry in found)


def _is_signature(entry: Import) -> bool:
    return entry.importer.startswith("stoker.dataset.fluent.") and entry.imported == "stoker"


def _statement_above(entry: Import) -> str:
    """Return the line of the block that an import is in."""
    lines = _sources()[entry.importer].read_text().splitlines()[: entry.line - 1]
    return next(line for line in reversed(lines) if line and not line.startswith(" "))


def test_no_import_circles_except_in_distribute():
    """`Dataset.distribute` closes the one circle when it is called."""
    assert circles(_all_imports(), set(_sources()) - FACADE) == [
        {
            "stoker.dataset.dataset",
            "stoker.service.api.distribution",
            "stoker.service.api.registration",
        }
    ]


def test_late_and_type_checking_circles_are_found():
    late = imports_of("def f():\n    from stoker.dataset import b", "stoker.dataset.a")
    typed = imports_of("if TYPE_CHECKING:\n    from stoker.dataset.a import A", "stoker.dataset.b")
    modules = {"stoker.dataset.a", "stoker.dataset.b", "stoker.dataset.c"}
    assert circles(late + typed, modules) == [{"stoker.dataset.a", "stoker.dataset.b"}]
    assert circles(late, modules) == []


@pytest.mark.parametrize(
    ("source", "importer", "imported"),
    [
        ("import stoker.service.control.rpc", "stoker.wire.frames", ["stoker.service.control.rpc"]),
        ("def f():\n    from stoker.cli import main", "stoker.cluster", ["stoker.cli.main"]),
        ("from ..wire import codec", "stoker.dataset.iterator", ["stoker.wire.codec"]),
        ("import stoker.dataset.iterator", "stoker.wire.frames", ["stoker.dataset.iterator"]),
        ("from stoker.wire import frames", "stoker.dataset.iterator", ["stoker.wire.frames"]),
        ("from stoker import Dataset", "stoker.service.api.distribution", ["stoker.Dataset"]),
        ("import stoker", "stoker.errors", ["stoker"]),
        ("from stoker.errors import StokerError", "stoker.dataset.tree.node", []),
        ("from . import node", "stoker.dataset.streams.execute", []),
        ("import stoker", "stoker.cli.demo.pipeline", []),
        ("from stoker import Dataset", "stoker.cli.demo.pipeline", []),
    ],
)
def test_upward_imports_are_found(source, importer, imported):
    assert [entry.imported for entry in upward(imports_of(source, importer))] == imported


def test_the_names_of_stoker_load_no_heavy_modules():
    code = (
        "import sys, stoker; stoker.Dataset, stoker.per_worker\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_stoker_or_a_config_loads_no_numpy():
    code = "import sys, stoker, stoker.service.config; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_function_is_not_shadowed_by_a_module_of_its_name():
    """Importing a module sets the package's attribute of that name, before a lazy import."""
    for package in (stoker, stoker.service):
        modules = {path.stem for path in Path(package.__path__[0]).iterdir()}
        found = {name for name in package.__all__ if name in modules}
        assert [name for name in found if not inspect.ismodule(getattr(package, name))] == []


def test_compat_loads_on_demand_and_without_tensorflow():
    code = (
        "import sys, stoker; print('stoker.compat' in sys.modules);"
        "from stoker.compat import tf; print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_only_adapters_import_frameworks():
    found = {
        (package_of(module), name)
        for module, path in _sources().items()
        for name in frameworks_in(path.read_text())
    }
    # `elements` converts tensors, whose program has imported it.
    assert {pair for pair in found if pair[0] not in ADAPTERS} == {("elements", "torch")}


def test_imports_of_frameworks_are_found():
    assert frameworks_in("def f():\n    import torch.distributed") == {"torch"}
    assert frameworks_in("from jax import numpy\nfrom stoker.torch import DataLoader") == {"jax"}


def test_no_module_but_adapters_imports_an_adapter():
    found = {(i.importer, i.imported) for i in _all_imports() if package_of(i.imported) in ADAPTERS}
    assert [pair for pair in found if package_of(pair[0]) not in ADAPTERS] == []


def frameworks_in(source: str) -> set[str]:
    """Return the frameworks that `source` imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names & set(FRAMEWORKS)


IMPORT_PARTS = 10
"""Tests that share the imports: all of them take half a minute of CPU."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(IMPORT_PARTS))
def test_every_module_can_be_imported_first(part):
    """The order of imports in a test run could otherwise hide a cycle."""
    names = [n for n in _sources() if n != "stoker.__main__" and not _is_adapter(n)]
    modules = names[part::IMPORT_PARTS]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, *modules], capture_output=True, text=True
    )
    assert done.stdout == "", done.stdout


IMPORT_EACH = """
import os, sys, importlib, traceback
import asyncio, cloudpickle, grpc, grpclib.client, grpclib.server, msgspec, numpy  # slow: once
import stoker  # the package itself is imported before any of its modules
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
