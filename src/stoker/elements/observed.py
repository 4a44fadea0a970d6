"""Spec inferred from elements where the element_spec is not declared."""

from typing import Any

from stoker.elements.spec import Spec, TensorSpec, UnknownSpec, spec_of
from stoker.elements.structure import children, flatten, is_leaf, rebuild, same_structure

_PLAIN = frozenset({int, float, bool, complex, str, bytes, type(None)})


class ObservedSpec:
    """Infers the unknown parts of a spec from elements.

    Args:
        declared: the declared spec, which may have unknown parts.

    Attributes:
        spec: `declared`, or the spec that covers all elements added.

    Example:
        >>> import numpy as np
        >>> from stoker import UnknownSpec
        >>> observed = ObservedSpec(UnknownSpec())
        >>> observed.add(np.zeros((2, 3)))
        >>> observed.add(np.zeros((5, 3)))
        >>> observed.spec
        TensorSpec(shape=(None, 3), dtype=float64)
    """

    def __init__(self, declared: Spec) -> None:
        self.spec = declared
        self._complete = not any(isinstance(leaf, UnknownSpec) for leaf in flatten(declared))
        self._last_type: type | None = None

    def add(self, element: Any) -> None:
        """Make `spec` cover `element`."""
        kind = type(element)
        if self._complete or (kind is self._last_type and kind in _PLAIN):
            return
        found = spec_of(element)
        self.spec = found if self._last_type is None else merged(self.spec, found)
        self._last_type = kind


def merged(a: Spec, b: Spec) -> Spec:
    """Return the parts that both specs have in common; unknown where they differ."""
    if isinstance(a, TensorSpec) and isinstance(b, TensorSpec):
        if a == b:
            return a
        if a.dtype != b.dtype or len(a.shape) != len(b.shape):
            return UnknownSpec()
        return TensorSpec(
            (x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)), a.dtype
        )
    if is_leaf(a) or is_leaf(b) or not same_structure(_outer(a), _outer(b)):
        return UnknownSpec()
    others = dict(children(b))
    return rebuild(a, [merged(member, others[name]) for name, member in children(a)])


def _outer(spec: Spec) -> Any:
    """Return the outermost container without its members, which may differ."""
    return rebuild(spec, [None] * len(children(spec)))
