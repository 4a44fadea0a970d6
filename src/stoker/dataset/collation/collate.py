"""From elements to one batch: leaf by leaf, checked, and written into rows where possible."""

import struct
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.dataset.collation.vectors import is_vector, vectors, write_text
from stoker.dataset.tree.node import Allocate
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.structure import Container, children, container_of, rebuild
from stoker.errors import InvalidArgumentError

Array = npt.NDArray[Any]

# Below this, keeping the array and stacking it later is cheaper than a row of its own.
_ROW_BYTES = 512


class Rows:
    """The arrays of one batch while threads fill them: each element goes into its own slot.

    The first element to arrive fixes every leaf's shape and dtype. A leaf that differs is kept as
    it is, and `collate` finds it.
    """

    def __init__(self, size: int, allocate: Allocate) -> None:
        self._size = size
        self._allocate = allocate
        self._arrays: dict[str, Array] = {}
        self._lock = threading.Lock()

    def write(self, slot: int, value: Any, name: str = "") -> Any:
        """Write the large arrays of `value` into row `slot`; returns it without them."""
        if container_of(type(value)) is not Container.LEAF:
            members = [self.write(slot, member, name + step) for step, member in children(value)]
            return rebuild(value, members)
        if not isinstance(value, np.ndarray):
            if not _is_array_like(value):
                return value
            value = np.asarray(value)
        if value.nbytes < _ROW_BYTES or value.dtype.hasobject:
            return value
        array = self._arrays.get(name)
        if array is None:
            array = self._make(name, value)
        if array.dtype != value.dtype or array.shape[1:] != value.shape:
            return value
        array[slot] = value
        return _WRITTEN

    def read(self, name: str) -> Array:
        """The array whose rows `write` has filled for this leaf."""
        return self._arrays[name]

    def _make(self, name: str, value: Array) -> Array:
        with self._lock:
            array = self._arrays.get(name)
            if array is None:
                array = self._allocate((self._size, *value.shape), value.dtype)
                self._arrays[name] = array
            return array


class _Written:
    """Stands where `Rows` has taken an array."""


_WRITTEN = _Written()


def collate(values: Sequence[Any], allocate: Allocate, rows: Rows | None = None) -> Any:
    """One batch of `values`: their structure, each leaf an array with one more dimension in front.

    Python numbers become int64, float64, bool and complex128, text and None an object array; arrays
    and NumPy scalars keep their dtype. Follows tf.data's batch: nothing is cast or padded.

    Args:
        values: the elements, at least one; where `rows` is given, as its `write` returned them.
        allocate: makes the arrays.
        rows: holds the leaves already written.

    Raises:
        InvalidArgumentError: the elements differ in structure, or a leaf in shape or dtype.
    """
    return Collation(allocate, rows).column(values, "")


class Collation:
    """Puts elements together leaf by leaf; subclasses say what becomes of a leaf.

    Args:
        allocate: makes the arrays.
        rows: holds the leaves already written.
    """

    takes_lists: ClassVar[bool] = False
    """Lists of numbers or text are vectors, not structure."""

    def __init__(self, allocate: Allocate, rows: Rows | None = None) -> None:
        self.allocate = allocate
        self._rows = rows

    def column(self, values: Sequence[Any], name: str) -> Any:
        """One value of `values`, which stand at `name` of their elements.

        Raises:
            InvalidArgumentError: they differ in structure, or a leaf in shape or dtype.
        """
        first = values[0]
        container = container_of(type(first))
        if self.takes_lists and list in set(map(type, values)):
            if container is Container.LEAF or (container is Container.LIST and is_vector(first)):
                return self.leaf(vectors(values, name, self.empty_dtype(name)), name)
        elif container is Container.LEAF:
            return self.leaf(values, name)
        _check_containers(values, name)
        steps = [step for step, _ in children(first)]
        columns: list[Sequence[Any]]
        if container is Container.DICT:
            columns = [[value[key] for value in values] for key in first]
        elif container is Container.DATACLASS:
            columns = list(zip(*([m for _, m in children(v)] for v in values), strict=True))
        else:
            columns = list(zip(*values, strict=True))
        return rebuild(
            first, [self.column(c, name + s) for s, c in zip(steps, columns, strict=True)]
        )

    def empty_dtype(self, name: str) -> np.dtype[Any]:
        """The dtype of a vector made of lists of which all are empty: NumPy's choice."""
        return np.dtype(np.float64)

    def leaf(self, values: Sequence[Any], name: str) -> Any:
        """The leaves `values` as one array with one more dimension in front.

        Raises:
            InvalidArgumentError: they differ in shape or dtype, or one cannot be in a batch.
        """
        kinds = set(map(type, values))
        if len(kinds) == 1:
            kind = next(iter(kinds))
            dtype = _NUMBERS.get(kind)
            if dtype is not None:
                return self._numbers(values, dtype, name)
            if kind is SparseArray:
                return _stack_sparse(values, name)
            if kind is _Written:
                return self._written(name)[: len(values)]
        if _Written in kinds:  # together with arrays that did not fit: the check below says why
            written = self._written(name)
            values = [written[i] if v is _WRITTEN else v for i, v in enumerate(values)]
        if all(issubclass(kind, _TEXT) for kind in kinds):
            return write_text(self.allocate((len(values),), np.dtype(object)), values)
        if any(container_of(kind) is not Container.LEAF for kind in kinds):
            _check_containers(values, name)
        return self.stack([as_array(value, name) for value in values], name)

    def _written(self, name: str) -> Array:
        assert self._rows is not None
        return self._rows.read(name)

    def _numbers(self, values: Sequence[Any], dtype: np.dtype[Any], name: str) -> Array:
        out = self.allocate((len(values),), dtype)
        letter = _LETTERS.get(dtype)
        if letter is None:
            out[:] = values
            return out
        try:  # takes half of what an assignment does
            struct.pack_into(f"={len(values)}{letter}", out.data, 0, *values)
        except struct.error:
            value = next(value for value in values if not -(2**63) <= value < 2**63)
            raise _beyond_int64(value, name) from None
        return out

    def stack(self, arrays: Sequence[Any], name: str) -> Array:
        """Arrays or NumPy scalars of one shape and dtype as one array.

        Raises:
            InvalidArgumentError: they differ.
        """
        shape, dtype = arrays[0].shape, arrays[0].dtype
        for i, array in enumerate(arrays):
            if array.shape != shape or array.dtype != dtype:
                raise mismatch(arrays[0], array, i, name)
        out = self.allocate((len(arrays), *shape), dtype)
        if shape and not dtype.hasobject:
            np.concatenate(arrays, out=out.reshape(len(arrays) * shape[0], *shape[1:]))
        else:
            for i, array in enumerate(arrays):
                out[i] = array
        return out


_NUMBERS: dict[type, np.dtype[Any]] = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
_LETTERS = {np.dtype(np.int64): "q", np.dtype(np.float64): "d"}  # of struct
_TEXT = (str, bytes, type(None))


def _is_array_like(value: Any) -> bool:
    # Images and tensors of other libraries say by these attributes that they are arrays.
    cls = type(value)
    if cls in _NUMBERS or isinstance(value, (*_TEXT, np.generic)):
        return False
    return hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def as_array(value: Any, name: str) -> Any:
    """`value` as something with shape and dtype.

    Raises:
        InvalidArgumentError: it is nothing that may be in a batch.
    """
    if isinstance(value, np.ndarray | np.generic) and not isinstance(value, np.str_ | np.bytes_):
        return value
    for kind, dtype in _NUMBERS.items():
        if isinstance(value, kind):
            try:
                return dtype.type(value)
            except OverflowError:
                raise _beyond_int64(value, name) from None
    if isinstance(value, _TEXT):
        return np.array(value, dtype=object)
    if _is_array_like(value):
        return np.asarray(value)
    if isinstance(value, RaggedArray):
        raise InvalidArgumentError(
            f"cannot batch: {leaf_called(name)} is a RaggedArray, and a batch of them would be "
            "ragged in two dimensions, which a RaggedArray cannot be; use rebatch to join their "
            "rows, or unbatch and padded_batch to make an array of them"
        )
    raise InvalidArgumentError(
        f"cannot batch: {leaf_called(name)} is a {type(value).__module__}."
        f"{type(value).__qualname__}; return arrays, numbers, bool, str, bytes or None, nested in "
        "tuples, lists, dicts, namedtuples or dataclasses, from the map before batch"
    )


def leaf_called(name: str) -> str:
    """What errors call the leaf at `name`."""
    return f"the leaf {name}" if name else "the element"


def _beyond_int64(value: object, name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"cannot batch: {leaf_called(name)} holds {value}, beyond int64; return a NumPy scalar of "
        "a dtype that holds it (np.uint64, np.float64), or text, from a map before batch"
    )


def mismatch(first: Any, other: Any, i: int, name: str) -> InvalidArgumentError:
    """The error of element `i` of a batch, whose leaf is unlike that of element 0."""
    if first.dtype != other.dtype:
        what = "dtype"
        values = (first.dtype, other.dtype)
        # NumPy's own text has a dtype for each length; object arrays hold any.
        to = "object" if any(dtype.kind in "USO" for dtype in values) else "np.float32"
        remedy = f"cast it to one dtype in a map before batch, as in `.astype({to})`"
    else:
        what = "shape"
        remedy = (
            "crop, resize or pad it to one shape in a map before batch, or use padded_batch or "
            "ragged_batch"
        )
        values = (first.shape, other.shape)
    return InvalidArgumentError(
        f"cannot batch: {leaf_called(name)} has {what} {values[0]} in element 0 of the batch and "
        f"{values[1]} in element {i}; {remedy}"
    )


def _check_containers(values: Sequence[Any], name: str) -> None:
    first = values[0]
    container = container_of(type(first))
    if container is Container.DICT:
        keys = first.keys()
        good = all(isinstance(value, dict) and value.keys() == keys for value in values)
    elif container in (Container.TUPLE, Container.LIST):
        size = len(first)
        good = all(container_of(type(v)) is container and len(v) == size for v in values)
    else:
        good = all(type(value) is type(first) for value in values)
    if good:
        return
    for i, value in enumerate(values):
        if _outline(value) != _outline(first):
            remedy = "return one structure from the map before batch"
            if container is container_of(type(value)) is Container.LIST:
                remedy += ", or use padded_batch or ragged_batch, where lists are vectors"
            raise InvalidArgumentError(
                f"cannot batch: {leaf_called(name).replace('leaf', 'value')} is "
                f"{_outline(first)} in element 0 of the batch and {_outline(value)} in element "
                f"{i}; {remedy}"
            )


def _outline(value: Any) -> str:
    """One level of a value's structure, as text."""
    container = container_of(type(value))
    if container is Container.DICT:
        return f"a dict with the keys {', '.join(sorted(map(repr, value)))}"
    if container in (Container.TUPLE, Container.LIST):
        return f"a {container.value} of {len(value)}"
    if container is Container.LEAF and (value is _WRITTEN or isinstance(value, np.ndarray)):
        return "an array"
    return f"a {type(value).__qualname__}"


def _stack_sparse(values: Sequence[SparseArray], name: str) -> SparseArray:
    """As tf.data batches sparse tensors: one rank more, the row number in front of each index."""
    shape, dtype = values[0].dense_shape, values[0].dtype
    for i, value in enumerate(values):
        if not np.array_equal(value.dense_shape, shape) or value.dtype != dtype:
            raise InvalidArgumentError(
                f"cannot batch: {leaf_called(name)} is sparse with shape {shape.tolist()} and "
                f"dtype {dtype} in element 0 of the batch and {value.dense_shape.tolist()} and "
                f"{value.dtype} in element {i}; give all one shape and dtype in a map before batch"
            )
    counts = [len(value.indices) for value in values]
    numbers = np.repeat(np.arange(len(values), dtype=np.int64), counts)
    indices = np.concatenate([value.indices for value in values])
    return SparseArray(
        np.concatenate([numbers[:, None], indices], axis=1),
        np.concatenate([value.values for value in values]),
        np.concatenate([[len(values)], shape]),
    )
