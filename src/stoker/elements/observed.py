"""The element_spec that elements turn out to have, where nobody declared it."""

from typing import Any

from stoker.elements.spec import Spec, TensorSpec, UnknownSpec, spec_of
from stoker.elements.structure import children, flatten, is_leaf, rebuild, same_structure

_PLAIN = frozenset({int, float, bool, complex, str, bytes, type(None)})


class ObservedSpec:
    """Looks at elements where something of their spec is not declared.

    Args:
        declared: what is known.

    Attributes:
        spec: what is known, or seen of all elements so far.

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
        self._seen: type | None = None

    def add(self, element: Any) -> None:
        """Takes an element into account."""
        kind = type(element)
        if self._complete or (kind is self._seen and kind in _PLAIN):
            return
        found = spec_of(element)
        self.spec = found if self._seen is None else merged(self.spec, found)
        self._seen = kind


def merged(a: Spec, b: Spec) -> Spec:
    """What both say; unknown where they differ."""
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
    """The outermost container alone: what is below it may differ."""
    return rebuild(spec, [None] * len(children(spec)))
