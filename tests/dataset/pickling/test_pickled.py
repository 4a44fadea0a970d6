"""Functions travel, with the user's own modules, and say what keeps them from it."""

import abc
import functools
import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stoker.dataset.pickling.pickled import Pickled
from stoker.errors import FailedPreconditionError, InvalidArgumentError

lock = threading.Lock()


def uses_the_lock(x: int) -> Any:
    return lock, x


def decode(x: int) -> Any:
    return uses_the_lock(x)


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the user's, which no worker has."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def imported(source: str) -> ModuleType:
        (tmp_path / "users_project.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module("users_project")

    yield imported
    sys.modules.pop("users_project", None)


def run_elsewhere(blob: bytes, tmp_path: Path) -> str:
    (tmp_path / "blob").write_bytes(blob)
    code = (
        "import sys; from stoker.dataset.pickling.pickled import Pickled\n"
        "print(Pickled.from_blob(open(sys.argv[1], 'rb').read()).value(20))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "blob")]
    result = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    return result.stdout + result.stderr


def test_the_users_modules_travel_by_value(
    project: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    module = project("FACTOR = 2\ndef twice(x):\n    return FACTOR * x\n")
    assert run_elsewhere(Pickled.of(lambda x: module.twice(x) + 1).blob, tmp_path) == "41\n"
    assert run_elsewhere(Pickled.of(module.twice).blob, tmp_path) == "40\n"


def test_installed_modules_travel_by_name() -> None:
    assert len(Pickled.of(json.dumps).blob) < 100
    assert len(Pickled.of(Pickled).blob) < 100


def test_pickling_leaves_no_module_registered() -> None:
    import cloudpickle  # type: ignore[import-untyped]

    before = set(cloudpickle.list_registry_pickle_by_value())
    Pickled.of(decode.__name__).blob  # noqa: B018
    assert cloudpickle.list_registry_pickle_by_value() == before


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    blob = Pickled.of(functools.partial(print, 1)).blob
    missing = blob.replace(b"builtins", b"b_ilt_ns")
    assert missing != blob
    with pytest.raises(FailedPreconditionError, match="'b_ilt_ns'"):
        Pickled.from_blob(missing).value  # noqa: B018


def test_bytes_that_are_no_pickle_are_one_clear_error() -> None:
    with pytest.raises(FailedPreconditionError, match="cannot be unpickled"):
        Pickled.from_blob(b"nonsense").value  # noqa: B018


def test_the_global_at_fault_and_its_user_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"`lock` .*_thread\.lock.* used by `uses_the_l"):
        Pickled.of(decode).blob  # noqa: B018


def test_the_closure_variable_at_fault_is_named() -> None:
    handle = threading.Lock()

    def read(x: int) -> Any:
        return handle, x

    with pytest.raises(InvalidArgumentError, match=r"`handle` .*used by `.*read`"):
        Pickled.of(functools.partial(read, 1)).blob  # noqa: B018


def test_the_attribute_at_fault_is_named() -> None:
    class Decoder:
        def __init__(self) -> None:
            self.guard = threading.Lock()

        def __call__(self, x: int) -> int:
            return x

    with pytest.raises(InvalidArgumentError, match=r"`\.guard`"):
        Pickled.of(Decoder()).blob  # noqa: B018


def test_the_path_to_the_attribute_at_fault_is_named() -> None:
    class Transform:
        def __init__(self) -> None:
            self.parts = [1, {"lock": threading.Lock()}]

    class Folder:
        def __init__(self) -> None:
            self.transform = Transform()

        def load(self, x: int) -> int:
            return x

    where = r"`self\.transform\.parts\[1\]\['lock'\]` \(a _thread\.lock\), used by `.*Folder\.load`"
    with pytest.raises(InvalidArgumentError, match=where):
        Pickled.of(Folder().load).blob  # noqa: B018


def test_the_attribute_of_a_class_at_fault_is_named() -> None:
    class Guarded(abc.ABC):  # noqa: B024
        guard = threading.Lock()

    class Folder(Guarded):
        def load(self, x: int) -> int:
            return x

    with pytest.raises(InvalidArgumentError, match=r"`Guarded\.guard` .*used by `.*Folder\.load`"):
        Pickled.of(Folder().load).blob  # noqa: B018


class _Operations(ModuleType):
    """A module that its package put in the place of its file, as `torch.ops`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(json, name)


def test_instances_of_module_classes_travel_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = _Operations("json.operations")
    monkeypatch.setitem(sys.modules, "json.operations", operations)
    monkeypatch.setattr(json, "operations", operations, raising=False)

    class Folder:
        operations = 2

        def load(self, x: int) -> str:
            return json.dumps(x + self.operations)

    pickled = Pickled.of(Folder().load)
    assert pickled.code() == Pickled.of(Folder().load).code()
    assert Pickled.from_blob(pickled.blob).value(1) == "3"
    assert Pickled.from_blob(Pickled.of(operations).blob).value is operations


def test_an_unregistered_module_object_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"_Operations.* cannot be pickled"):
        Pickled.of(_Operations("json.operations")).blob  # noqa: B018


def test_value_and_blob_are_kept() -> None:
    value = [1, 2]
    opaque = Pickled.of(value)
    assert opaque.value is value
    assert opaque.blob is opaque.blob
    there = Pickled.from_blob(opaque.blob)
    assert there.value == value
    assert there.value is there.value
