"""User functions and values, pickled lazily with cloudpickle."""

import dis
import functools
import io
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

from stoker.errors import FailedPreconditionError, InvalidArgumentError

# cloudpickle's set of modules pickled by value is global: one registration at a time.
_lock = threading.RLock()
_UNSET: Any = object()
_Result = TypeVar("_Result")


class Pickled:
    """A user function or value, pickled at the first use of `blob`, unpickled at that of `value`.

    Modules that are not installed distributions (the user's project, editable installs) are pickled
    by value, so that a worker needs installed packages only. Thread-safe.
    """

    __slots__ = ("_blob", "_value")

    def __init__(self) -> None:
        self._value: Any = _UNSET
        self._blob: bytes | None = None

    @classmethod
    def of(cls, value: Any) -> "Pickled":
        """Wrap a value."""
        pickled = cls()
        pickled._value = value
        return pickled

    @classmethod
    def from_blob(cls, blob: bytes) -> "Pickled":
        """Wrap a pickled value without unpickling it."""
        pickled = cls()
        pickled._blob = blob
        return pickled

    @property
    def value(self) -> Any:
        """The value, unpickled if necessary.

        Raises:
            FailedPreconditionError: if a module it needs is not installed here.
        """
        if self._value is _UNSET:
            with _lock:
                if self._value is _UNSET:
                    assert self._blob is not None
                    self._value = _unpickle(self._blob)
        return self._value

    @property
    def blob(self) -> bytes:
        """The pickled value; every call returns the same bytes.

        Raises:
            InvalidArgumentError: if it cannot be pickled; the message names the variable.
        """
        if self._blob is None:
            with _lock:
                if self._blob is None:
                    self._blob = _pickle(self._value)
        return self._blob

    def digest(self) -> str:
        """Return the `code_digest` of the value; of its blob if it is not unpickled here.

        Raises:
            InvalidArgumentError: if it cannot be pickled.
        """
        from stoker.dataset.code_digest import bytes_digest, code_digest

        with _lock:
            if self._value is _UNSET:
                return bytes_digest(self.blob)
            return _by_value(code_digest, self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pickled.from_blob, (self.blob,)

    def __repr__(self) -> str:
        if self._value is _UNSET:
            return f"Pickled(<{len(self._blob or b'')} bytes>)"
        return f"Pickled({_name(self._value)})"


def _pickle(value: Any) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]

    def pickle(value: Any) -> bytes:
        buffer = io.BytesIO()
        cloudpickle.Pickler(buffer, protocol=5).dump(value)
        return buffer.getvalue()

    return _by_value(pickle, value)


def _by_value(pickle: Callable[[Any], _Result], value: Any) -> _Result:
    """Call `pickle` while the user's modules are pickled by value.

    Raises:
        InvalidArgumentError: if it fails; the message names the variable.
    """
    import cloudpickle

    with _user_modules_by_value(cloudpickle):
        try:
            return pickle(value)
        except Exception as error:
            owner, variable, culprit = _find_culprit(cloudpickle, value)
            raise InvalidArgumentError(_message(value, owner, variable, culprit, error)) from error


def _message(value: Any, owner: Any, variable: str, culprit: Any, error: Exception) -> str:
    kind = type(culprit)
    described = f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")
    if variable:
        what = f"`{variable}` ({described}), used by `{_name(owner)}`, cannot be pickled"
    else:
        what = f"`{_name(value)}` ({described}) cannot be pickled"
    return f"{what}: {error}; create it inside the function, or pass what it is made from"


def _name(value: Any) -> str:
    if isinstance(value, functools.partial):
        return _name(value.func)
    return getattr(value, "__qualname__", None) or type(value).__qualname__


@contextmanager
def _user_modules_by_value(cloudpickle: ModuleType) -> Iterator[None]:
    already = cloudpickle.list_registry_pickle_by_value()
    added = []
    module: Any  # sys.modules may contain other objects
    for name, module in list(sys.modules.items()):
        if not _is_user_module(name, getattr(module, "__file__", None)) or name in already:
            continue
        # Some packages register an object under another name; cloudpickle uses __name__.
        if isinstance(module, ModuleType) and module.__name__ == name:
            cloudpickle.register_pickle_by_value(module)
            added.append(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


@functools.lru_cache(maxsize=1 << 16)
def _is_user_module(name: str, file: Any) -> bool:
    root = name.partition(".")[0]
    if root in sys.stdlib_module_names or root in ("stoker", "__main__", "__mp_main__"):
        return False
    # Extension modules cannot be pickled by value.
    if not isinstance(file, str) or not file.endswith((".py", ".pyc")):
        return False
    path = Path(file).resolve()
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in _stdlib_folders())


@functools.cache
def _stdlib_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple({Path(paths[key]).resolve() for key in ("stdlib", "platstdlib")})


def _find_culprit(cloudpickle: ModuleType, value: Any) -> tuple[Any, str, Any]:
    """Return the innermost object that cannot be pickled, with its owner and its name there."""
    owner, variable, culprit = value, "", value
    seen = {id(value)}
    while True:
        for name, found in _references_of(culprit):
            if id(found) not in seen and not _picklable(cloudpickle, found):
                seen.add(id(found))
                if not isinstance(culprit, MethodType | functools.partial):
                    owner = culprit
                variable, culprit = name, found
                break
        else:
            return owner, variable, culprit


def _picklable(cloudpickle: ModuleType, value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 - a __reduce__ may raise anything
        return False
    return True


def _references_of(value: Any) -> list[tuple[str, Any]]:
    """Return the variables that are pickled with `value`, by name."""
    if isinstance(value, MethodType):
        return [("self", value.__self__), (value.__func__.__name__, value.__func__)]
    if isinstance(value, functools.partial):
        found = [(f"argument {i}", v) for i, v in enumerate(value.args)]
        return [*found, *value.keywords.items(), (_name(value.func), value.func)]
    if isinstance(value, FunctionType):
        found = [
            (n, value.__globals__[n]) for n in _global_names(value.__code__, value.__globals__)
        ]
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                found.append((name, cell.cell_contents))
            except ValueError:  # a variable not yet assigned
                continue
        found += [(f"default {i}", v) for i, v in enumerate(value.__defaults__ or ())]
        return [*found, *(value.__kwdefaults__ or {}).items()]
    if isinstance(value, dict):
        return [(f"[{key!r}]", found) for key, found in value.items()]
    if isinstance(value, list | tuple):
        return [(f"[{i}]", found) for i, found in enumerate(value)]
    attributes = getattr(value, "__dict__", None)
    return [(f".{k}", v) for k, v in attributes.items()] if isinstance(attributes, dict) else []


def _global_names(code: CodeType, variables: dict[str, Any]) -> list[str]:
    names = [
        str(instruction.argval)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    ]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _global_names(constant, variables)
    return [name for name in dict.fromkeys(names) if name in variables]


def _unpickle(blob: bytes) -> Any:
    import cloudpickle

    try:
        return cloudpickle.loads(blob)
    except ModuleNotFoundError as error:
        raise FailedPreconditionError(
            f"a function of the dataset needs the module {error.name!r}, which is not installed "
            f"here (python {sys.executable}); install it where the function runs"
        ) from error
    except Exception as error:
        raise FailedPreconditionError(
            f"a function of the dataset cannot be unpickled here: {type(error).__name__}: {error}; "
            "install the same versions of Python and packages on both sides"
        ) from error
