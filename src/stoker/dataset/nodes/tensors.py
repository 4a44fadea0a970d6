"""from_tensors and from_tensor_slices: values held in memory."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.dataset.execute import Context
from stoker.dataset.node import IndexSplits, Node
from stoker.dataset.opaque import Opaque
from stoker.dataset.ragged import RaggedArray
from stoker.dataset.source import IndexStream
from stoker.dataset.sparse import SparseArray
from stoker.dataset.spec import Spec, TensorSpec, UnknownSpec, spec_of
from stoker.dataset.stream import Stream
from stoker.dataset.structure import (
    Container,
    children,
    container_of,
    flatten,
    leaf_names,
    map_structure,
    pack_like,
    rebuild,
)
from stoker.errors import InvalidArgumentError

_OBJECT_BYTES = 64
_SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)
_INT64 = np.iinfo(np.int64)


class Tensors(Node, frozen=True, eq=False, kw_only=True):
    """One element."""

    kind: ClassVar[str] = "from_tensors"
    value: Opaque

    def element_spec(self) -> Spec:
        return spec_of(self.value.value)

    def cardinality(self) -> int:
        return 1

    def splits(self) -> IndexSplits:
        return IndexSplits(1)

    def open(self, context: Context) -> Stream:
        def read(start: int, stop: int) -> list[Any]:
            element = map_structure(_read_only, self.value.value)
            return [element] * (stop - start)

        return IndexStream(context, self, 1, 1, read)


class TensorSlices(Node, frozen=True, eq=False, kw_only=True):
    """Slices of arrays along their first dimension."""

    kind: ClassVar[str] = "from_tensor_slices"
    value: Opaque
    count: int

    def element_spec(self) -> Spec:
        return map_structure(_slice_spec, self.value.value)

    def cardinality(self) -> int:
        return self.count

    def splits(self) -> IndexSplits:
        return IndexSplits(self.count)

    def open(self, context: Context) -> Stream:
        structure = map_structure(_read_only, self.value.value)
        total = sum(_size(leaf) for leaf in flatten(structure))
        element_bytes = total // max(1, self.count)
        return IndexStream(context, self, self.count, element_bytes, _slicer(structure))


def _slicer(structure: Any) -> Callable[[int, int], list[Any]]:
    """Cuts ranges of a structure into elements, with the least work its nesting allows."""
    leaves = flatten(structure)

    def columns(start: int, stop: int) -> list[list[Any]]:
        return [_rows(leaf, start, stop) for leaf in leaves]

    container = container_of(type(structure))
    if container is Container.LEAF:
        return lambda start, stop: columns(start, stop)[0]
    flat = len(leaves) == len(children(structure))
    if flat and container is Container.TUPLE:
        return lambda start, stop: list(zip(*columns(start, stop), strict=True))

    def rows(start: int, stop: int) -> Iterator[tuple[Any, ...]]:
        return zip(*columns(start, stop), strict=True)

    if flat and container is Container.DICT:
        keys = list(structure)
        return lambda a, b: [dict(zip(keys, row)) for row in rows(a, b)]  # noqa: B905
    if flat:
        return lambda a, b: [rebuild(structure, row) for row in rows(a, b)]
    return lambda a, b: [pack_like(structure, row) for row in rows(a, b)]


def _rows(leaf: Any, start: int, stop: int) -> list[Any]:
    if isinstance(leaf, np.ndarray):
        return list(leaf[start:stop])
    return [leaf[row] for row in range(start, stop)]


def _read_only(leaf: Any) -> Any:
    """A view that cannot be written: every pass hands out the same memory."""
    if isinstance(leaf, np.ndarray):
        view = leaf.view()
        view.flags.writeable = False
        return view
    if isinstance(leaf, RaggedArray):
        return RaggedArray(_read_only(leaf.values), _read_only(leaf.row_splits))
    if isinstance(leaf, SparseArray):
        parts = (leaf.indices, leaf.values, leaf.dense_shape)
        return SparseArray(*(_read_only(part) for part in parts))
    return leaf


def _size(leaf: Any) -> int:
    if isinstance(leaf, np.ndarray) and leaf.dtype == object:
        return leaf.size * _OBJECT_BYTES
    return int(leaf.nbytes)


def _slice_spec(leaf: Any) -> Spec:
    if isinstance(leaf, np.ndarray):
        return TensorSpec(leaf.shape[1:], leaf.dtype)
    if isinstance(leaf, RaggedArray):
        return TensorSpec((None, *leaf.values.shape[1:]), leaf.dtype)
    return UnknownSpec()


def as_tensors(value: Any, name: str = "") -> Any:
    """The value with its lists as arrays, as the constructors take it.

    Args:
        value: tuples, dicts, namedtuples and dataclasses of arrays, lists and scalars.
        name: how to write `value` in errors.

    Raises:
        InvalidArgumentError: a leaf is no array, number, text, bytes or None, a list is ragged, or
            an int is beyond int64; names it.
    """
    container = container_of(type(value))
    if container is Container.LIST:
        return _array_of_list(value, name)
    if container is not Container.LEAF:
        members = [as_tensors(member, name + step) for step, member in children(value)]
        return rebuild(value, members)
    if type(value) is int and not _INT64.min <= value <= _INT64.max:
        raise InvalidArgumentError(f"{_at(name)} is {value}, beyond int64; split it or use float")
    if isinstance(value, (*_SCALARS, RaggedArray, SparseArray)):
        return value
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        return _checked(np.asarray(value), name)
    raise InvalidArgumentError(
        f"{_at(name)} is a {type(value).__qualname__}; give arrays, lists, numbers, str, bytes, "
        "None, RaggedArray or SparseArray, nested in tuples and dicts"
    )


def _array_of_list(value: list[Any], name: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"{_at(name)} is a list that is no array: {error}; give rows of one length, or "
            "RaggedArray.from_rows(...)"
        ) from error
    if array.dtype.kind in "US" or array.dtype == object:
        # Not NumPy's fixed-width text: it strips zeros and turns [1, "a"] into text.
        array = np.array(value, dtype=object)
    if array.dtype == np.uint64 and not _holds_arrays(value):
        raise InvalidArgumentError(f"{_at(name)} holds ints beyond int64; give a uint64 array")
    return _checked(array, name)


def _holds_arrays(value: Any) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, np.ndarray | np.generic)


def _checked(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    if array.dtype == object:
        for item in array.flat:
            if item is not None and not isinstance(item, str | bytes):
                raise InvalidArgumentError(
                    f"{_at(name)} holds a {type(item).__qualname__} ({item!r}) among objects; "
                    "object arrays hold only str, bytes and None"
                )
    return array


def _at(name: str) -> str:
    return f"the value at {name}" if name else "the value"


def count_of(value: Any) -> int:
    """How many slices a value of `as_tensors` has.

    Raises:
        InvalidArgumentError: a leaf has no first dimension, or two differ in it; names them.
    """
    counts: dict[str, int] = {}
    for name, leaf in zip(leaf_names(value), flatten(value), strict=True):
        if isinstance(leaf, _SCALARS) or (isinstance(leaf, np.ndarray) and leaf.ndim == 0):
            raise InvalidArgumentError(
                f"{_at(name)} ({leaf!r}) has no first dimension to slice; use from_tensors, or "
                "wrap it in a list"
            )
        if isinstance(leaf, SparseArray) and not len(leaf.dense_shape):
            raise InvalidArgumentError(f"{_at(name)} is a SparseArray of rank 0: no slices")
        counts[name] = len(leaf)
    if not counts:
        raise InvalidArgumentError("there is nothing to slice; give at least one array")
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{_at(name)} has {count}" for name, count in counts.items())
        raise InvalidArgumentError(f"all arrays must have the same first dimension; {listed}")
    return next(iter(counts.values()))
