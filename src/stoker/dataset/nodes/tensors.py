"""from_tensors and from_tensor_slices: values in memory."""

from collections.abc import KeysView, ValuesView
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.dataset.collation.rows import row_spec, slicer
from stoker.dataset.collation.tables import ArrayTable
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.source import IndexStream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, IndexSource, is_dataset
from stoker.dataset.tree.table import Table
from stoker.elements.foreign import array_of
from stoker.elements.frozen import frozen
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import Spec, UnknownSpec, spec_of
from stoker.elements.structure import (
    Container,
    children,
    container_of,
    flatten,
    leaf_names,
    map_structure,
    rebuild,
)
from stoker.errors import InvalidArgumentError

_OBJECT_BYTES = 64
_SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)
_INT64 = np.iinfo(np.int64)

SEQUENCES = (range, KeysView, ValuesView)
"""Types that become arrays as lists do."""


class Tensors(IndexSource, frozen=True, eq=False, kw_only=True):
    """Yields a single element."""

    kind: ClassVar[str] = "from_tensors"
    value: Pickled

    def element_spec(self) -> Spec:
        return _spec_of(self.value.value)

    def cardinality(self) -> int:
        return 1

    def open(self, context: Context) -> Stream:
        element = self.value
        return IndexStream(
            context, self, 1, 1, lambda start, stop: [frozen(element.value)] * (stop - start)
        )


class TensorSlices(IndexSource, frozen=True, eq=False, kw_only=True):
    """Yields slices of arrays along their first dimension."""

    kind: ClassVar[str] = "from_tensor_slices"
    value: Pickled
    count: int

    def element_spec(self) -> Spec:
        return row_spec(_spec_of(self.value.value))

    def cardinality(self) -> int:
        return self.count

    def table(self) -> Table | None:
        structure = frozen(self.value.value)
        # The rows of ragged and sparse arrays differ in size, and are built one after another.
        if not self.count or not all(isinstance(leaf, np.ndarray) for leaf in flatten(structure)):
            return None
        return ArrayTable(structure)

    def open(self, context: Context) -> Stream:
        structure = frozen(self.value.value)
        total = sum(_size(leaf) for leaf in flatten(structure))
        element_bytes = total // max(1, self.count)
        return IndexStream(context, self, self.count, element_bytes, slicer(structure))


def _spec_of(value: Any) -> Spec:
    def of_leaf(leaf: Any) -> Any:
        if _has_objects(leaf) and any(map(is_dataset, leaf.flat)):
            return UnknownSpec()
        return spec_of(leaf)

    return map_structure(of_leaf, value)


def _size(leaf: Any) -> int:
    if _has_objects(leaf):
        return int(leaf.size * _OBJECT_BYTES)
    return 0 if leaf is None else int(leaf.nbytes)


def _has_objects(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype == object


def as_tensors(value: Any, name: str = "") -> Any:
    """Convert the lists of a value to arrays and check its leaves.

    Args:
        value: tuples, dicts, namedtuples and dataclasses of arrays, lists, ranges, scalars and
            datasets.
        name: name of `value` in errors.

    Raises:
        InvalidArgumentError: if a leaf is not an array, number, text, bytes, None or dataset, a
            list is ragged, or an int is beyond int64; the message names the leaf.
    """
    container = container_of(type(value))
    if container is Container.LIST or isinstance(value, SEQUENCES):
        return _array_of_list(list(value), name)
    if container is not Container.LEAF:
        members = [as_tensors(member, name + step) for step, member in children(value)]
        return rebuild(value, members)
    # NumPy would make a uint64 or an object array of such an int, with the numbers of the rest.
    if type(value) is int and not _INT64.min <= value <= _INT64.max:
        raise InvalidArgumentError(f"{_at(name)} is {value}, beyond int64; split it or use float")
    if isinstance(value, (*_SCALARS, RaggedArray, SparseArray)) or is_dataset(value):
        return value
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        return _checked(array_of(value, name), name)
    raise InvalidArgumentError(
        f"{_at(name)} is a {type(value).__qualname__}; give arrays, lists, numbers, str, bytes, "
        "None, RaggedArray, SparseArray or datasets, nested in tuples and dicts"
    )


def _array_of_list(value: list[Any], name: str) -> npt.NDArray[Any]:
    try:
        found = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"{_at(name)} is a list that cannot become an array: {error}; give rows of one length, "
            "or RaggedArray.from_rows(...)"
        ) from error
    if found.dtype.kind in "US" or found.dtype == object:
        # Not NumPy's fixed-width text, which strips zeros and turns [1, "a"] into text.
        found = np.array(value, dtype=object)
    if found.dtype == np.uint64 and not _contains_arrays(value):
        raise InvalidArgumentError(f"{_at(name)} contains ints beyond int64; give a uint64 array")
    return _checked(found, name)


def _contains_arrays(value: Any) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, np.ndarray | np.generic)


def _checked(given: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    if given.dtype == object and not (given.size and all(map(is_dataset, given.flat))):
        for item in given.flat:
            if item is not None and not isinstance(item, str | bytes):
                raise InvalidArgumentError(
                    f"{_at(name)} contains a {type(item).__qualname__} ({item!r}) among objects; "
                    "object arrays may contain only str, bytes and None, or only datasets"
                )
    return given


def _at(name: str) -> str:
    return f"the value at {name}" if name else "the value"


def count_of(value: Any) -> int:
    """Return the number of slices of a value of `as_tensors`.

    Raises:
        InvalidArgumentError: if a leaf has no first dimension, or two leaves differ in the first
            dimension; the message names the leaves.
    """
    counts: dict[str, int] = {}
    for name, leaf in zip(leaf_names(value), flatten(value), strict=True):
        if leaf is None and name:  # in each slice, as in tf.data
            continue
        if isinstance(leaf, _SCALARS) or (isinstance(leaf, np.ndarray) and leaf.ndim == 0):
            raise InvalidArgumentError(
                f"{_at(name)} ({leaf!r}) has no first dimension to slice; use from_tensors, or "
                "wrap it in a list"
            )
        if isinstance(leaf, SparseArray) and not len(leaf.dense_shape):
            raise InvalidArgumentError(f"{_at(name)} is a SparseArray of rank 0: no slices")
        if isinstance(leaf, SparseArray):
            # Rows are cut by a search, which would lose items whose indices are out of range.
            leaf.check_indices()
        counts[name] = len(leaf)
    if not counts:
        raise InvalidArgumentError("there is nothing to slice; give at least one array")
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{_at(name)} has {count}" for name, count in counts.items())
        raise InvalidArgumentError(f"all arrays must have the same first dimension; {listed}")
    return next(iter(counts.values()))
