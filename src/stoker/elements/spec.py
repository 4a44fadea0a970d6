"""Specs: the structure, shapes and dtypes of a dataset's elements."""

import dataclasses
import operator
from collections.abc import Iterable
from itertools import starmap
from types import NoneType
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from stoker.elements.codec.dtypes import WireDtype, from_wire, to_wire
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.structure import (
    Container,
    container_of,
    field_names,
    flatten,
    generated_class,
    is_leaf,
    make_dataclass_instance,
    map_structure,
    member_pairs,
    same_container,
)
from stoker.errors import FailedPreconditionError, InvalidArgumentError, InvalidTypeError, WireError

# A TensorSpec, RaggedSpec, SparseSpec or UnknownSpec, or a nest of them shaped as the elements are.
Spec = Any


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class _ArraySpec:
    """Base of the array specs; specs of different classes are unequal."""

    __stoker_leaf__: ClassVar[bool] = True

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def __init__(self, shape: Iterable[int | None] = (), dtype: npt.DTypeLike = np.float32) -> None:
        object.__setattr__(self, "shape", _lengths(shape))
        object.__setattr__(self, "dtype", _resolved(dtype))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


class TensorSpec(_ArraySpec):
    """Shape and dtype of an array, number, bool or text; as tf.TensorSpec.

    Text, bytes and None have the dtype ``object``.

    Attributes:
        shape: one length per dimension, ``None`` if it varies.
        dtype: a NumPy dtype.

    Raises:
        InvalidArgumentError: if a length is negative.
        InvalidTypeError: if a length is no int, or `dtype` no NumPy dtype.

    Example:
        >>> TensorSpec([None, 3], "float32")
        TensorSpec(shape=(None, 3), dtype=float32)
    """


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class RaggedSpec(_ArraySpec):
    """Shape and dtype of a RaggedArray; as tf.RaggedTensorSpec.

    Attributes:
        shape: the number of rows or ``None``, then ``None`` for each ragged dimension, then one
            length per dimension of the innermost rows' items, ``None`` if it varies.
        dtype: a NumPy dtype.
        ragged_rank: number of ragged dimensions.

    Raises:
        InvalidArgumentError: if `shape` is not ``(rows, None, ...)``, with a ``None`` for each
            ragged dimension, or a length is negative.
        InvalidTypeError: if a length is no int, or `dtype` no NumPy dtype.

    Example:
        >>> RaggedSpec([3, None], "int64")
        RaggedSpec(shape=(3, None), dtype=int64)
    """

    ragged_rank: int = 1

    def __init__(
        self,
        shape: Iterable[int | None] = (None, None),
        dtype: npt.DTypeLike = np.float32,
        ragged_rank: int = 1,
    ) -> None:
        super().__init__(shape, dtype)
        object.__setattr__(self, "ragged_rank", ragged_rank)
        ragged = self.shape[1 : 1 + ragged_rank]
        if ragged_rank < 1 or ragged != (None,) * ragged_rank:
            raise InvalidArgumentError(
                f"`shape` of a RaggedSpec must be (rows, None, ...) with a None for each of "
                f"{ragged_rank} ragged dimensions; got {self.shape}"
            )

    def __repr__(self) -> str:
        rank = f", ragged_rank={self.ragged_rank}" if self.ragged_rank > 1 else ""
        return f"RaggedSpec(shape={self.shape}, dtype={self.dtype}{rank})"


class SparseSpec(_ArraySpec):
    """Dense shape and dtype of a SparseArray; as tf.SparseTensorSpec.

    Attributes:
        shape: one length per dimension, ``None`` if it varies.
        dtype: a NumPy dtype.

    Raises:
        InvalidArgumentError: if a length is negative.
        InvalidTypeError: if a length is no int, or `dtype` no NumPy dtype.

    Example:
        >>> SparseSpec([None, 100], "float32")
        SparseSpec(shape=(None, 100), dtype=float32)
    """


def _lengths(shape: Iterable[int | None]) -> tuple[int | None, ...]:
    try:
        lengths = tuple(None if length is None else operator.index(length) for length in shape)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"`shape` must be int lengths or None, such as (None, 3); got {shape!r}"
        ) from error
    if any(length is not None and length < 0 for length in lengths):
        raise InvalidArgumentError(f"`shape` must not be negative; got {lengths}")
    return lengths


def _resolved(dtype: npt.DTypeLike) -> np.dtype[Any]:
    if dtype is str or dtype is bytes:  # arrays of text have the dtype object
        dtype = object
    try:
        return np.dtype(dtype)
    except TypeError as error:
        raise InvalidTypeError(f"`dtype` must be a NumPy dtype; got {dtype!r}") from error


@dataclasses.dataclass(frozen=True)
class UnknownSpec:
    """Spec of elements of which nothing is known; compatible with any spec."""

    __stoker_leaf__: ClassVar[bool] = True


def ragged_rank(spec: Spec) -> int:
    """Return the number of ragged dimensions of an array spec, 0 for one that is not ragged."""
    return spec.ragged_rank if isinstance(spec, RaggedSpec) else 0


def with_shape(spec: Any, shape: Iterable[int | None], more_ragged: int = 0) -> Any:
    """Return an array spec with another shape, and `more_ragged` more ragged dimensions.

    Ragged dimensions get unknown lengths; without any, the spec is a TensorSpec.
    """
    if not isinstance(spec, RaggedSpec):
        return type(spec)(shape, spec.dtype)
    rank = spec.ragged_rank + more_ragged
    if rank == 0:
        return TensorSpec(shape, spec.dtype)
    first, *rest = shape
    return RaggedSpec((first, *[None] * rank, *rest[rank:]), spec.dtype, rank)


# By their kind on the wire.
_ARRAYS: dict[str, type[TensorSpec | RaggedSpec | SparseSpec]] = {
    "tensor": TensorSpec,
    "ragged": RaggedSpec,
    "sparse": SparseSpec,
}
_KINDS = {cls: kind for kind, cls in _ARRAYS.items()}

_SCALARS: dict[type, np.dtype[Any]] = {
    **{kind: np.dtype(kind) for kind in (bool, int, float, complex)},
    **dict.fromkeys((str, bytes, NoneType), np.dtype(object)),
}


def spec_of(value: Any) -> Spec:
    """Return the spec of an element.

    Example:
        >>> import numpy as np
        >>> spec_of({"x": np.zeros((2, 3), np.uint8), "label": 7})  # doctest: +NORMALIZE_WHITESPACE
        {'x': TensorSpec(shape=(2, 3), dtype=uint8),
         'label': TensorSpec(shape=(), dtype=int64)}
    """
    return map_structure(_leaf_spec, value)


def _leaf_spec(leaf: Any) -> Spec:
    if isinstance(leaf, np.ndarray | np.generic):
        return TensorSpec(leaf.shape, leaf.dtype)
    if isinstance(leaf, RaggedArray):
        ragged = (None,) * leaf.ragged_rank
        shape = (len(leaf), *ragged, *leaf.flat_values.shape[1:])
        return RaggedSpec(shape, leaf.dtype, leaf.ragged_rank)
    if isinstance(leaf, SparseArray):
        return SparseSpec(leaf.dense_shape, leaf.dtype)
    scalar = _SCALARS.get(type(leaf))
    return UnknownSpec() if scalar is None else TensorSpec((), scalar)


def is_spec(value: Any) -> bool:
    """Return True for a TensorSpec, RaggedSpec, SparseSpec or UnknownSpec, or a nest of them."""
    return all(type(leaf) in _KINDS or isinstance(leaf, UnknownSpec) for leaf in flatten(value))


def compatible(a: Spec, b: Spec) -> bool:
    """Return whether an element could match both specs.

    UnknownSpec is compatible with any spec, an unknown length with any length.
    """
    if isinstance(a, UnknownSpec) or isinstance(b, UnknownSpec):
        return True
    if type(a) in _KINDS and type(a) is type(b):
        alike = a.dtype == b.dtype and ragged_rank(a) == ragged_rank(b)
        return alike and _shapes_agree(a.shape, b.shape)
    if is_leaf(a) or not same_container(a, b):
        return False
    # Not `same_structure`: below a container, an UnknownSpec may match a container.
    return all(starmap(compatible, member_pairs(a, b)))


def _shapes_agree(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> bool:
    return len(a) == len(b) and all(
        x is None or y is None or x == y for x, y in zip(a, b, strict=True)
    )


def spec_to_wire(spec: Spec) -> Any:
    """Return the spec as builtin values; classes by name only.

    Raises:
        InvalidArgumentError: if it contains anything but specs, or a key that is not UTF-8.
    """
    if isinstance(spec, UnknownSpec):
        return {"kind": "unknown"}
    cls = type(spec)
    if cls in _KINDS:
        shape, dtype = list(spec.shape), _dtype_to_wire(spec.dtype)
        wired = {"kind": _KINDS[cls], "shape": shape, "dtype": dtype}
        return wired | {"ragged_rank": spec.ragged_rank} if ragged_rank(spec) > 1 else wired
    container = container_of(cls)
    if container is Container.LEAF:
        raise InvalidArgumentError(
            f"an element_spec holds TensorSpec, RaggedSpec, SparseSpec and UnknownSpec; "
            f"got a {cls.__qualname__}: {spec!r}"
        )
    wire: dict[str, Any] = {"kind": container.value}
    if container is Container.DICT:
        wire["items"] = [[_checked_key(key), spec_to_wire(member)] for key, member in spec.items()]
    elif container in (Container.NAMEDTUPLE, Container.DATACLASS):
        wire["name"] = cls.__name__
        wire["items"] = [[n, spec_to_wire(getattr(spec, n))] for n in field_names(cls)]
    else:
        wire["items"] = [spec_to_wire(member) for member in spec]
    return wire


def _dtype_to_wire(dtype: np.dtype[Any]) -> Any:
    # Object arrays have no dtype in a frame: their items are encoded as values.
    return dtype.str if dtype.kind == "O" else msgspec.to_builtins(to_wire(dtype))


def _checked_key(key: Any) -> Any:
    if isinstance(key, str):
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(
                f"the key {key[:60]!r} of an element_spec cannot be encoded as UTF-8 (a lone "
                f"surrogate at {error.start}); use another key"
            ) from error
    return key


def spec_from_wire(wire: Any) -> Spec:
    """Return the spec encoded by `spec_to_wire`; namedtuples and dataclasses get generated classes.

    Raises:
        InvalidArgumentError: if `wire` is no encoded spec.
    """
    try:
        return _from_wire(wire)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"these values are not an element_spec: {error}") from error


def _from_wire(wire: Any) -> Spec:
    kind = wire["kind"]
    if kind == "unknown":
        return UnknownSpec()
    if kind in _ARRAYS:
        rank = int(wire.get("ragged_rank", 1))
        dtype = _dtype_from_wire(wire["dtype"])
        if kind == "ragged":
            return RaggedSpec(wire["shape"], dtype, rank)
        return _ARRAYS[kind](wire["shape"], dtype)
    container = Container(kind)
    if container is Container.LEAF:
        raise ValueError(f"unknown kind {kind!r}")
    items = wire["items"]
    if container in (Container.TUPLE, Container.LIST):
        members = [_from_wire(item) for item in items]
        return tuple(members) if container is Container.TUPLE else members
    pairs = [(key, _from_wire(item)) for key, item in items]
    if container is Container.DICT:
        return dict(pairs)
    cls = generated_class(container, str(wire["name"]), tuple(name for name, _ in pairs))
    make = tuple.__new__ if container is Container.NAMEDTUPLE else make_dataclass_instance
    return make(cls, [member for _, member in pairs])


def _dtype_from_wire(wire: Any) -> np.dtype[Any]:
    try:
        return np.dtype(object) if wire == "|O" else from_wire(msgspec.convert(wire, WireDtype))
    except (msgspec.ValidationError, WireError, FailedPreconditionError) as error:
        raise InvalidArgumentError(f"{wire!r} is not a dtype: {error}") from error
