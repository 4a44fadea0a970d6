"""Specs that cover several datasets, or the elements of a dataset without a declared spec."""

from typing import Any

from stoker.elements.spec import (
    RaggedSpec,
    SparseSpec,
    Spec,
    TensorSpec,
    UnknownSpec,
    ragged_rank,
    spec_of,
    with_shape,
)
from stoker.elements.structure import flatten, is_leaf, member_pairs, rebuild, same_container
from stoker.errors import InvalidArgumentError

_ARRAYS = (TensorSpec, RaggedSpec, SparseSpec)
_PLAIN = frozenset({int, float, bool, complex, str, bytes, type(None)})


def common_spec(a: Spec, b: Spec, *, or_unknown: bool = False) -> Spec:
    """Return the narrowest spec compatible with both; a length that differs becomes ``None``.

    Args:
        a: spec of one dataset; its classes and the order of its keys are kept.
        b: spec of the other.
        or_unknown: parts that differ become UnknownSpec, and are no error.

    Raises:
        InvalidArgumentError: if their structures or dtypes differ.

    Example:
        >>> common_spec(TensorSpec([3, 2], "int64"), TensorSpec([5, 2], "int64"))
        TensorSpec(shape=(None, 2), dtype=int64)
    """
    are_arrays = isinstance(a, _ARRAYS) and type(a) is type(b)
    if are_arrays and a == b:  # usual; to make a spec for each element took a sixth of `save`
        return a
    if isinstance(a, UnknownSpec) or isinstance(b, UnknownSpec):
        return UnknownSpec()
    if are_arrays and a.dtype == b.dtype:
        return _common_array(a, b)
    if not is_leaf(a) and same_container(a, b):
        pairs = member_pairs(a, b)
        return rebuild(a, [common_spec(x, y, or_unknown=or_unknown) for x, y in pairs])
    if or_unknown:
        return UnknownSpec()
    differing = "dtypes" if are_arrays else "structures"
    raise InvalidArgumentError(f"{a} and {b} have different {differing}")


def _common_array(a: Any, b: Any) -> Spec:
    if len(a.shape) != len(b.shape) or ragged_rank(a) != ragged_rank(b):
        return UnknownSpec()  # a spec has a fixed number of dimensions
    pairs = zip(a.shape, b.shape, strict=True)
    return with_shape(a, [x if x == y else None for x, y in pairs])


class ObservedSpec:
    """Infers the unknown parts of a spec from elements.

    Args:
        declared: the declared spec, which may have unknown parts.

    Attributes:
        spec: `declared`, or the spec that covers all elements added.

    Example:
        >>> import numpy as np
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
        # All plain values of a type have one spec: files of numbers are observed at full speed.
        if self._complete or (kind is self._last_type and kind in _PLAIN):
            return
        found = spec_of(element)
        first = self._last_type is None
        self.spec = found if first else common_spec(self.spec, found, or_unknown=True)
        self._last_type = kind
