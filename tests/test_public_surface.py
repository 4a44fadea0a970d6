"""The public names are those of shared/BEHAVIOUR.md, as far as they are implemented."""

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

import stoker
import stoker.errors
import stoker.service
import stoker.testing

STOKER = {
    "Dataset",
    "Iterator",
    "Options",
    "TensorSpec",
    "UnknownSpec",
    "RaggedArray",
    "RaggedSpec",
    "SparseArray",
    "SparseSpec",
    "TFRecordWriter",
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "SHARD_HINT",
    "LocalCluster",
    "errors",
    "headroom",
    "per_worker",
    "random",
    "service",
    "testing",
    "__version__",
}
SERVICE = {
    "DispatchServer",
    "DispatcherConfig",
    "WorkerServer",
    "WorkerConfig",
    "distribute",
    "register_dataset",
    "from_dataset_id",
    "ShardingPolicy",
    "CrossTrainerCache",
}
TESTING = {"assert_resumable"}
ERRORS = {
    "StokerError": Exception,
    "InvalidArgumentError": ValueError,
    "InvalidTypeError": TypeError,
    "InvalidConfigError": RuntimeError,
    "DataLossError": ValueError,
    "NotFoundError": LookupError,
    "AlreadyExistsError": Exception,
    "FailedPreconditionError": RuntimeError,
    "UnavailableError": ConnectionError,
    "UnimplementedError": NotImplementedError,
    "PermissionDeniedError": PermissionError,
    "UserFunctionError": Exception,
    "PoisonedElementError": Exception,
}


MODULES = ["stoker", "stoker.service", "stoker.testing"]


@pytest.mark.parametrize(
    ("module", "names"), [*zip(MODULES, (STOKER, SERVICE, TESTING), strict=True)]
)
def test_all_is_the_documented_surface(module, names):
    assert set(importlib.import_module(module).__all__) == names


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists_and_is_listed(module):
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
        assert name in dir(loaded)


@pytest.mark.parametrize("module", MODULES)
def test_type_checkers_see_the_names_of_run_time(module):
    [checked] = [
        node
        for node in ast.parse(inspect.getsource(importlib.import_module(module))).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    seen = {
        alias.name: f"{node.module}.{alias.name}" if node.module == module else node.module
        for node in imports
        for alias in node.names
    }
    [table] = [node for node in ast.walk(checked.orelse[0]) if isinstance(node, ast.Dict)]
    assert ast.literal_eval(table) == seen


def test_the_service_needs_no_import_of_its_own():
    code = "import stoker; print(stoker.service.distribute.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stdout == "stoker.service.api.distribution\n", done.stderr


@pytest.mark.parametrize("module", MODULES)
def test_every_public_class_and_function_has_a_docstring(module):
    loaded = importlib.import_module(module)
    public = [getattr(loaded, name) for name in loaded.__all__]
    described = [thing for thing in public if inspect.isclass(thing) or inspect.isfunction(thing)]
    assert [thing for thing in described if not inspect.getdoc(thing)] == []


@pytest.mark.parametrize(("name", "builtin"), sorted(ERRORS.items(), key=str))
def test_errors_subclass_matching_builtins(name, builtin):
    error = getattr(stoker.errors, name)
    assert issubclass(error, builtin)
    assert issubclass(error, stoker.errors.StokerError)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        stoker.no_such_name  # type: ignore[attr-defined]  # noqa: B018 - the access is the test
