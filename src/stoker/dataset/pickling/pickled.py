"""User functions and values, pickled lazily with cloudpickle."""

import functools
import io
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import (
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
    SimpleNamespace,
)
from typing import TYPE_CHECKING, Any, TypeVar

from stoker.dataset.pickling.references import is_function, name_of, references_of
from stoker.errors import FailedPreconditionError, InvalidArgumentError

if TYPE_CHECKING:
    from stoker.dataset.pickling.code_digest import Code

# cloudpickle's set of modules pickled by value is global: a single registration at a time.
_lock = threading.RLock()
_UNSET: Any = object()
_Result = TypeVar("_Result")


class Pickled:
    """A user function or value, pickled at the first use of `blob`, unpickled at that of `value`.

    Modules that are not installed distributions (the user's project, editable installs) are pickled
    by value, so that a worker needs installed packages only. Thread-safe.
    """

    __slots__ = ("_blob", "_code", "_value")

    def __init__(self, value: Any = _UNSET, blob: bytes | None = None) -> None:
        self._value = value
        self._blob = blob
        self._code: Code | None = None

    @classmethod
    def of(cls, value: Any) -> "Pickled":
        """Wrap a value."""
        return cls(value)

    @classmethod
    def from_blob(cls, blob: bytes) -> "Pickled":
        """Wrap a pickled value without unpickling."""
        return cls(blob=blob)

    @property
    def is_unpickled(self) -> bool:
        """True if `value` runs no code of the user."""
        return self._value is not _UNSET

    @property
    def value(self) -> Any:
        """The value, unpickled if necessary.

        Raises:
            FailedPreconditionError: if a needed module is not installed here.
        """
        if self._value is _UNSET:
            with _lock:
                # Another thread may have unpickled the value while this thread waited.
                if self._value is _UNSET:
                    assert self._blob is not None
                    self._value = _unpickle(self._blob)
        return self._value

    @property
    def blob(self) -> bytes:
        """The pickled value; every call returns the same bytes.

        Raises:
            InvalidArgumentError: if pickling fails; the message names the variable.
        """
        if self._blob is None:
            with _lock:
                if self._blob is None:
                    self._blob = _by_value(_dump, self._value)
        return self._blob

    def code(self) -> "Code":
        """Return the digest and the record classes of the value.

        Returns:
            The digest of the blob and no classes, if the value is not unpickled here: the program
            has not got such classes.

        Raises:
            InvalidArgumentError: if the value cannot be pickled.
        """
        from stoker.dataset.pickling.code_digest import Code, bytes_digest, inspect_code

        with _lock:
            if self._code is None and self._value is _UNSET:
                return Code(bytes_digest(self.blob), ())
            if self._code is None:
                self._code = _by_value(inspect_code, self.value)
            return self._code

    def large_references(self, least: int) -> list[tuple[str, str, int]]:
        """Return the variables of `least` bytes and more that are pickled with a function.

        Returns:
            The name of the variable, of the function that uses the variable, and its size. Nothing
            if the value is not a function, or not unpickled here.
        """
        if self._value is _UNSET:
            return []
        with _lock:
            return _by_value(functools.partial(_large_references, least=least), self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pickled.from_blob, (self.blob,)

    def __repr__(self) -> str:
        if self._value is _UNSET:
            return f"Pickled(<{len(self._blob or b'')} bytes>)"
        return f"Pickled({name_of(self._value)})"


def _dump(value: Any) -> bytes:
    from stoker.dataset.pickling.pickler import Pickler

    buffer = io.BytesIO()
    Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def _by_value(pickle: Callable[[Any], _Result], value: Any) -> _Result:
    """Call `pickle` while the user's modules are pickled by value.

    Raises:
        InvalidArgumentError: if pickling fails; the message names the variable.
    """
    import cloudpickle  # type: ignore[import-untyped]

    with _user_modules_by_value(cloudpickle):
        try:
            return pickle(value)
        except Exception as error:
            owner, path, culprit = _find_culprit(value)
            raise InvalidArgumentError(_message(value, owner, path, culprit, error)) from error


def _message(value: Any, owner: Any, path: str, culprit: Any, error: Exception) -> str:
    kind = type(culprit)
    described = f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")
    if path:
        what = f"`{path}` ({described}), used by `{name_of(owner)}`, cannot be pickled"
    else:
        what = f"`{name_of(value)}` ({described}) cannot be pickled"
    return f"{what}: {error}; create it inside the function, or pass what it is made from"


@contextmanager
def _user_modules_by_value(cloudpickle: ModuleType) -> Iterator[None]:
    already = cloudpickle.list_registry_pickle_by_value()
    added = []
    for module in _user_modules(tuple(map(id, list(sys.modules.values())))):
        if module.__name__ not in already:
            cloudpickle.register_pickle_by_value(module)
            added.append(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


# Once for each change of sys.modules: beside TensorFlow and PyTorch it has 4,500 modules. A look at
# each takes 14 ms on a busy machine, a comparison of their ids 0.7 ms.
@functools.lru_cache(maxsize=1)
def _user_modules(_: tuple[int, ...]) -> list[ModuleType]:
    """Return the modules of the user's program and project, for the ids of all modules."""
    found = []
    module: Any  # sys.modules may contain any objects
    for name, module in list(sys.modules.items()):
        # Some packages register an object under another name; cloudpickle uses __name__.
        if _is_user_module(name, getattr(module, "__file__", None)) and (
            isinstance(module, ModuleType) and module.__name__ == name
        ):
            found.append(module)
    return found


def is_users_own(module: str | None) -> bool:
    """Return whether a module is the user's program or project, not an installed package."""
    if module in ("__main__", "__mp_main__"):
        return True
    return module is not None and _is_user_module(
        module, getattr(sys.modules.get(module), "__file__", None)
    )


@functools.lru_cache(maxsize=1 << 16)
def _is_user_module(name: str, file: Any) -> bool:
    root = name.partition(".")[0]
    # cloudpickle pickles `__main__` by value itself, but not `__mp_main__`, the name that
    # multiprocessing gives to the program in a spawned process.
    if root in sys.stdlib_module_names or root in ("stoker", "__main__"):
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


def _find_culprit(value: Any) -> tuple[Any, str, Any]:
    """Return the innermost object that cannot be pickled, with its owner and its path there.

    The owner is a function or a class, and the path begins with a variable or an attribute of it.
    """
    owner, path, culprit = value, "", value
    seen = {id(value)}
    while True:
        for name, found in (*references_of(culprit), *_class_references(culprit)):
            if id(found) not in seen and not _picklable(found):
                seen.add(id(found))
                if name.startswith((".", "[")):
                    path += name
                else:
                    path = name
                    owner = culprit if isinstance(culprit, FunctionType) else owner
                culprit = found
                break
        else:
            return owner, path, culprit


def _class_references(value: Any) -> list[tuple[str, Any]]:
    """Return the class that is pickled with an object, or the attributes and bases of a class."""
    if not isinstance(value, type):
        cls = type(value)
        return [(cls.__name__, cls)] if is_users_own(cls.__module__) else []
    attributes = [
        (f".{name}", found)
        for name, found in vars(value).items()
        if name != "_abc_impl" and not isinstance(found, _NOT_PICKLED)
    ]
    return [*attributes, *((base.__name__, base) for base in value.__bases__)]


# Members of a class that cloudpickle leaves out: ``__dict__``, ``__weakref__``, slots.
_NOT_PICKLED = (GetSetDescriptorType, MemberDescriptorType)


def _picklable(value: Any) -> bool:
    try:
        _dump(value)
    except Exception:  # noqa: BLE001 - a __reduce__ may raise anything
        return False
    return True


def _large_references(value: Any, least: int) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    stack, seen = [value], {id(value)}
    while stack:
        owner = stack.pop()
        for name, reference in references_of(owner) if is_function(owner) else ():
            if id(reference) in seen or (size := _pickled_bytes(reference)) < least:
                continue
            seen.add(id(reference))
            if is_function(reference):
                stack.append(reference)
            else:
                found.append((name, name_of(owner), size))
    return found


def _pickled_bytes(value: Any) -> int:
    """Return the size of a pickled value; 0 if the value cannot be pickled alone."""
    from stoker.dataset.pickling.pickler import Pickler

    sizes: list[int] = []

    def count(data: Any) -> None:
        sizes.append(memoryview(data).nbytes)

    try:
        # Only counted: a copy of a large array could take more memory than there is.
        Pickler(SimpleNamespace(write=count), protocol=5, buffer_callback=count).dump(value)
    except Exception:  # noqa: BLE001 - a __reduce__ may raise anything
        return 0
    return sum(sizes)


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
