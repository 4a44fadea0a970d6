"""Values on the stack of a function, by the variables that outlive its calls."""

import builtins
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

Place: TypeAlias = tuple[str, ...]
"""A variable, then the attributes and constant keys that lead from there to a value."""

_NONE: frozenset[Place] = frozenset()

_PURE_MODULES = frozenset({"builtins", "math", "numpy"})


class Value(NamedTuple):
    """A value on the stack.

    Attributes:
        place: from which it was loaded; ``()``: it was computed.
        outer: the variable of `place` outlives a call.
        depends: the outer places that the value was computed from.
        counted: those of `depends` that took part in an arithmetic operation.
        stepped: those of `counted` that a constant was added to.
        constant: a constant, as text.
    """

    place: Place = ()
    outer: bool = False
    depends: frozenset[Place] = _NONE
    counted: frozenset[Place] = _NONE
    stepped: frozenset[Place] = _NONE
    constant: str = ""

    def member(self, step: str) -> "Value":
        """Return an attribute, or the item of a constant key."""
        if not self.outer:
            return Value((*self.place, step) if self.place else (), depends=self.depends)
        return outer_value((*self.place, step))


def outer_value(place: Place) -> Value:
    """Return the value of a variable that outlives a call."""
    return Value(place, True, frozenset({place}))


def combined(values: Sequence[Value]) -> Value:
    """Return a value that is computed from `values`."""
    return Value(
        depends=_NONE.union(*(value.depends for value in values)),
        counted=_NONE.union(*(value.counted for value in values)),
        stepped=_NONE.union(*(value.stepped for value in values)),
    )


def added(left: Value, right: Value) -> Value:
    """Return the result of an arithmetic operation."""
    depends = left.depends | right.depends
    is_step = bool(left.constant or right.constant)
    stepped = depends if is_step else left.stepped | right.stepped
    return Value(depends=depends, counted=depends, stepped=stepped)


def is_pure(place: Place, variables: Mapping[str, Any]) -> bool:
    """Return whether the result of a function depends on its arguments alone.

    Args:
        place: of the function.
        variables: the global variables.
    """
    if not place:
        return False
    found = variables.get(place[0], getattr(builtins, place[0], None))
    for step in place[1:]:
        if not isinstance(found, ModuleType):
            return False
        found = getattr(found, step[1:], None)
    module = getattr(found, "__module__", None) or ""
    return isinstance(found, type) or module.partition(".")[0] in _PURE_MODULES
