"""The variables that a function refers to, by name."""

import dis
import functools
from types import CodeType, FunctionType, MethodType
from typing import Any


def is_function(value: Any) -> bool:
    """Return whether `value` is a function, a method or a partial application of either."""
    return isinstance(value, FunctionType | MethodType | functools.partial)


def name_of(value: Any) -> str:
    """Return the name of a function, or of the class of another value."""
    if isinstance(value, functools.partial):
        return name_of(value.func)
    return getattr(value, "__qualname__", None) or type(value).__qualname__


def references_of(value: Any) -> list[tuple[str, Any]]:
    """Return the variables that are pickled with `value`, by name."""
    if isinstance(value, MethodType):
        return [("self", value.__self__), (value.__func__.__name__, value.__func__)]
    if isinstance(value, functools.partial):
        found = [(f"argument {i}", v) for i, v in enumerate(value.args)]
        return [*found, *value.keywords.items(), (name_of(value.func), value.func)]
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
