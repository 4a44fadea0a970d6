"""The functions of a tree whose results depend on earlier calls.

Only variables that calls are certain to change are found, and only in the user's own functions and
classes. A false warning would be worse than none: caches, statistics, lazily loaded models and the
state of installed packages are not reported.
"""

import inspect
import io
import itertools
import random
import weakref
from collections.abc import Iterable, Iterator
from types import BuiltinMethodType, FunctionType, MethodType, MethodWrapperType
from typing import Any, NamedTuple

import numpy as np

from stoker.dataset.per_worker import per_worker
from stoker.dataset.pickling.pickled import is_users_own
from stoker.dataset.pickling.references import is_function, name_of, references_of
from stoker.dataset.stateful.counters import counters_of
from stoker.dataset.tree.call_site import warn_at_call_site
from stoker.dataset.tree.node import Node, layout_of, number

_ITERATORS = ("builtins", "itertools", "_csv", "stoker")
"""Packages of iterators that are only read; a database cursor, for example, is also reset."""

_RANDOM = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)

_ABSOLUTE = {"seek", "fileno", "pread"}
"""Names in functions that choose the place of a file to read from."""

_WRITES = {"write", "writelines", "print"}
_READS = {"read", "read1", "readinto", "readline", "readlines", "__next__", "next"}
"""Names in functions that write to a file, such as a log, and that read on in a file."""

_RESETS = {"seed", "setstate", "set_state", "bit_generator"}
"""Names in functions that set the state of a random generator."""

_MAX_DEPTH = 4
_MAX_ITEMS = 1000
"""Limits of the search in containers and objects."""

_warned: "weakref.WeakSet[Node]" = weakref.WeakSet()


class StatefulFunction(NamedTuple):
    """A function of a node, with the name and class of a variable that its calls change."""

    node: Node
    variable: str

    def __str__(self) -> str:
        return f"the function of `{self.node.kind}` ({self.node.site}) has a state: {self.variable}"


# An error or a warning needs certainty: comparing objects before and after calls would report
# caches, statistics and lazily loaded models. (docs/decisions/089)
def stateful_functions(root: Node) -> Iterator[StatefulFunction]:
    """Yield the functions of a tree that are certain to have a state, in the order of the nodes.

    Functions are unpickled, which runs code of the user.
    """
    for node in number(root):
        fields = (getattr(node, field) for field in layout_of(type(node)).pickled)
        found = (state_of(pickled.value) for pickled in fields if pickled is not None)
        if variable := next(filter(None, found), ""):
            yield StatefulFunction(node, variable)


def warn_if_stateful(root: Node) -> None:
    """Warn once of each function of a tree with a state that the state of an iterator lacks."""
    for found in stateful_functions(root):
        if found.node in _warned:
            continue
        _warned.add(found.node)
        warn_at_call_site(
            f"{found}. The state of an iterator does not contain it, so that elements may differ "
            "from those of an epoch without interruption. Count with enumerate(), keep what "
            "depends on earlier elements in scan(), and draw from stoker.random.generator()"
        )


def state_of(function: Any) -> str:
    """Return the name and class of a variable that calls of a function change; "" if none is found.

    Args:
        function: a user's function, method, partial or callable object, or a tuple of arguments;
            no other value has a state.
    """
    if not (callable(function) or isinstance(function, tuple)):
        return ""
    return next(_states(function), "")


class _Found(NamedTuple):
    """A variable that is searched.

    Attributes:
        value: its value.
        names: the names in the code that uses the variable.
        depth: number of containers and objects around the value.
        called: the value's code runs; the code of the `self` of a method does not.
    """

    value: Any
    names: frozenset[str] = frozenset()
    depth: int = 0
    called: bool = True


def _states(root: Any) -> Iterator[str]:
    stack = [_Found(root)]
    seen = {id(root)}
    while stack:
        owner, names, depth, called = stack.pop()
        functions = _functions_of(owner) if called else []
        if functions:
            names = frozenset(itertools.chain.from_iterable(map(_names_in, functions)))
            method = not isinstance(owner, FunctionType)
            # Other functions may give all arguments of a function that they call.
            defaults = _mutable_defaults(owner) if owner is root and not method else ()
            for each in functions:
                code, variables = each.__code__, each.__globals__
                yield from counters_of(code, variables, method=method, defaults=defaults)
        for name, value in _followed(owner, names, depth):
            if id(value) in seen:
                continue
            seen.add(id(value))
            state = _state_in(value, names)
            if state is not None:
                yield f"`{name.removeprefix('.')}` ({_class_name(state)})"
            elif not isinstance(value, type):
                is_self = isinstance(owner, MethodType) and value is owner.__self__
                below = 0 if is_function(value) else depth + 1
                stack.append(_Found(value, names, below, not is_self))


def _followed(value: Any, names: frozenset[str], depth: int) -> Iterable[tuple[str, Any]]:
    """Return the variables of a value that a call may use; `names` are the names in its code."""
    if depth >= _MAX_DEPTH or isinstance(value, per_worker):
        return ()
    if isinstance(value, FunctionType):
        return references_of(value) if is_users_own(value.__module__) else ()
    if is_function(value):
        return references_of(value)
    if type(value) in (dict, list, tuple):
        return references_of(value) if len(value) <= _MAX_ITEMS else ()
    if callable(value) and type(value).__module__.startswith("stoker."):  # wraps a user's function
        return references_of(value)
    if is_users_own(type(value).__module__):
        return [(name, found) for name, found in references_of(value) if name[1:] in names]
    return ()


def _state_in(value: Any, names: frozenset[str]) -> Any:
    """Return the value, or the object of a bound method, if stateful; otherwise ``None``."""
    methods = (MethodType, BuiltinMethodType, MethodWrapperType)
    for candidate in (value, value.__self__ if isinstance(value, methods) else None):
        if isinstance(candidate, _RANDOM):
            if not names & _RESETS:
                return candidate
        elif isinstance(candidate, io.IOBase):
            if not names & _ABSOLUTE and (names & _READS or not _is_output(candidate, names)):
                return candidate
        elif isinstance(candidate, Iterator) and _is_consumed(type(candidate)):
            return candidate
    return None


def _is_output(file: io.IOBase, names: frozenset[str]) -> bool:
    return file.closed or not file.readable() or bool(names & _WRITES)


def _is_consumed(cls: type) -> bool:
    """Return whether iterators of a class only change by being read, and do change."""
    return cls is not itertools.repeat and cls.__module__.partition(".")[0] in _ITERATORS


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}.{name_of(type(value))}".removeprefix("builtins.")


def _names_in(function: FunctionType) -> tuple[str, ...]:
    return function.__code__.co_names


def _mutable_defaults(function: FunctionType) -> list[str]:
    """Return the arguments whose default values calls may change."""
    code, defaults = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount][-len(defaults) or code.co_argcount :]
    given = [*zip(positional, defaults, strict=True), *(function.__kwdefaults__ or {}).items()]
    return [name for name, value in given if type(value).__hash__ is None]


def _functions_of(value: Any) -> list[FunctionType]:
    """Return the user's functions that a call of `value` runs: itself, and methods it names."""
    if isinstance(value, FunctionType):
        return [value] if is_users_own(value.__module__) else []
    if isinstance(value, MethodType):
        cls, name = type(value.__self__), value.__func__.__name__
    else:
        cls, name = type(value), "__call__"
    functions: list[FunctionType] = []
    names, waiting = {name}, [name]
    while waiting and is_users_own(cls.__module__):
        method = inspect.getattr_static(cls, waiting.pop(), None)
        method = method.fget if isinstance(method, property) else method
        if isinstance(method, FunctionType) and is_users_own(method.__module__):
            functions.append(method)
            waiting += [each for each in _names_in(method) if each not in names]
            names.update(waiting)
    return functions
