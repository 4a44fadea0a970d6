"""Arguments that tf.data has and stoker has no use for: accepted, and dropped."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

WITHOUT_MEANING = {
    "name": None,  # nothing is named here
    "deterministic": None,  # order is always deterministic
    "synchronous": None,
    "use_unbounded_threadpool": False,
}
"""Names and defaults of the arguments; where stoker's method has one, it is handed on."""

_UNTOUCHED = {"apply", "distribute", "iterator", "as_numpy_iterator", "cardinality", "options"}

_Class = TypeVar("_Class", bound=type)


def tolerant(cls: _Class) -> _Class:
    """The class, whose public methods take tf.data's arguments without meaning by keyword."""
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
    """The function, which also takes the arguments of `WITHOUT_MEANING` that it does not have."""
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
