"""Arguments of tf.data that have no effect in stoker: accepted and ignored."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

WITHOUT_MEANING = {
    "name": None,  # nodes have no names
    "deterministic": None,  # order is always deterministic
    "synchronous": None,
    "use_unbounded_threadpool": False,
}
"""Names and defaults of the arguments; passed on if stoker's method has the argument."""

_UNTOUCHED = {"apply", "distribute", "iterator", "as_numpy_iterator", "cardinality", "options"}

_Class = TypeVar("_Class", bound=type)


def tolerant(cls: _Class) -> _Class:
    """Let the public methods of a class accept the ignored arguments by keyword."""
    for name in dir(cls):
        if name.startswith("_") or name in _UNTOUCHED:
            continue
        method = inspect.getattr_static(cls, name)
        kind = type(method) if isinstance(method, classmethod | staticmethod) else None
        function = method.__func__ if kind is not None else method
        if inspect.isfunction(function):
            wrapped = dropping(function)
            setattr(cls, name, wrapped if kind is None else kind(wrapped))
    return cls


def dropping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function accept the arguments of `WITHOUT_MEANING` that the function lacks."""
    signature = inspect.signature(function)
    extra = {k: v for k, v in WITHOUT_MEANING.items() if k not in signature.parameters}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in extra:
            kwargs.pop(name, None)
        return function(*args, **kwargs)

    parameters = [*signature.parameters.values(), *map(_keyword, extra, extra.values())]
    parameters.sort(key=lambda parameter: parameter.kind)  # **kwargs stay last
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def _keyword(name: str, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
