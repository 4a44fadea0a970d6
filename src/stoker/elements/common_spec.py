"""Spec that covers the elements of several datasets."""

from typing import Any

from stoker.elements.spec import (
    RaggedSpec,
    SparseSpec,
    Spec,
    TensorSpec,
    UnknownSpec,
    ragged_rank,
    with_shape,
)
from stoker.elements.structure import Container, children, container_of, rebuild
from stoker.errors import InvalidArgumentError

_ARRAYS = (TensorSpec, RaggedSpec, SparseSpec)


def common_spec(a: Spec, b: Spec) -> Spec:
    """Return the narrowest spec compatible with both; a length that differs becomes ``None``.

    Args:
        a: spec of one dataset; its classes and the order of its keys are kept.
        b: spec of the other.

    Raises:
        InvalidArgumentError: if their structures or dtypes differ.

    Example:
        >>> common_spec(TensorSpec([3, 2], "int64"), TensorSpec([5, 2], "int64"))
        TensorSpec(shape=(None, 2), dtype=int64)
    """
    if isinstance(a, UnknownSpec) or isinstance(b, UnknownSpec):
        return UnknownSpec()
    if isinstance(a, _ARRAYS) and type(a) is type(b):
        return _common_array(a, b)
    container = container_of(type(a))
    if container is Container.LEAF or not _same_container(a, b):
        raise InvalidArgumentError(f"{a} and {b} have different structures")
    mine = [member for _, member in children(a)]
    other = [b[key] for key in a] if isinstance(a, dict) else [x for _, x in children(b)]
    return rebuild(a, [common_spec(x, y) for x, y in zip(mine, other, strict=True)])


def _same_container(a: Spec, b: Spec) -> bool:
    # By name, as elsewhere: the class generated for a received spec is not the user's class.
    container = container_of(type(a))
    if container is not container_of(type(b)):
        return False
    if container is Container.DICT:
        return bool(a.keys() == b.keys())
    if container in (Container.NAMEDTUPLE, Container.DATACLASS):
        same = type(a).__name__ == type(b).__name__
        return same and [name for name, _ in children(a)] == [name for name, _ in children(b)]
    return len(a) == len(b)


def _common_array(a: Any, b: Any) -> Spec:
    if a.dtype != b.dtype:
        raise InvalidArgumentError(f"{a} and {b} have different dtypes")
    if len(a.shape) != len(b.shape) or ragged_rank(a) != ragged_rank(b):
        return UnknownSpec()
    pairs = zip(a.shape, b.shape, strict=True)
    return with_shape(a, [x if x == y else None for x, y in pairs])
