"""Elements to a batch, leaf by leaf."""

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.dataset.collation.leaves import (
    NUMBERS,
    TEXT,
    as_array,
    beyond_int64,
    leaf_called,
    mismatch,
)
from stoker.dataset.collation.rows import list_as_objects
from stoker.dataset.collation.slots import WRITTEN, Slots, Written
from stoker.dataset.collation.vectors import is_vector, vectors, write_text
from stoker.dataset.tree.node import is_dataset
from stoker.dataset.tree.table import Allocate
from stoker.elements.ragged import RaggedArray, stacked
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import TensorSpec
from stoker.elements.structure import Container, children, container_of, rebuild
from stoker.errors import InvalidArgumentError

Array = npt.NDArray[Any]


def collate(values: Sequence[Any], allocate: Allocate, slots: Slots | None = None) -> Any:
    """Return the batch of `values`: their structure, each leaf an array with a new first dimension.

    Python numbers become int64, float64, bool and complex128, text and None an object array; arrays
    and NumPy scalars keep their dtype. Follows tf.data's batch: nothing is cast or padded.

    Args:
        values: the elements, at least one element; with `slots`, the results of its `write`.
        allocate: makes the arrays.
        slots: has the leaves already written.

    Raises:
        InvalidArgumentError: if the elements differ in structure, or a leaf in shape or dtype.
    """
    return Collation(allocate, slots).column(values, "")


class Collation:
    """Combines elements leaf by leaf; subclasses define what a leaf becomes.

    Args:
        allocate: makes the arrays.
        slots: has the leaves already written.
    """

    takes_lists: ClassVar[bool] = False
    """True if lists of numbers or text are vectors, not structure."""

    def __init__(self, allocate: Allocate, slots: Slots | None = None) -> None:
        self.allocate = allocate
        self._slots = slots

    def column(self, values: Sequence[Any], name: str) -> Any:
        """Return the combination of `values`, which are at `name` in their elements.

        Raises:
            InvalidArgumentError: if elements differ in structure, or a leaf in shape or dtype.
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
        members = zip(steps, columns_of(values), strict=True)
        return rebuild(first, [self.column(column, name + step) for step, column in members])

    def empty_dtype(self, name: str) -> np.dtype[Any]:
        """Return the dtype of a vector of lists that are all empty: NumPy's default."""
        return np.dtype(np.float64)

    def leaf(self, values: Sequence[Any], name: str) -> Any:
        """Return the leaves `values` as an array with a new first dimension.

        Raises:
            InvalidArgumentError: if leaves differ in shape or dtype, or a leaf cannot be in a
                batch.
        """
        # The types are found in C; single values are looked at only where types differ.
        kinds = set(map(type, values))
        if len(kinds) == 1:
            kind = next(iter(kinds))
            dtype = NUMBERS.get(kind)
            if dtype is not None:
                return self._numbers(values, dtype, name)
            if kind is SparseArray:
                return _stack_sparse(values, name)
            if kind is RaggedArray:
                check_ragged_ranks(values, name)
                return stacked(values, partial(self.concatenate, name=name))
            if all(map(is_dataset, values)):
                return list_as_objects(values)
            if kind is Written:
                # The last batch may have fewer elements than slots.
                return self._written(name)[: len(values)]
        if Written in kinds:  # with arrays that did not fit: the check below raises
            written = self._written(name)
            values = [written[i] if v is WRITTEN else v for i, v in enumerate(values)]
        if all(issubclass(kind, TEXT) for kind in kinds):
            return write_text(self.allocate((len(values),), np.dtype(object)), values)
        # A leaf beside a list or dict: the error names the structures, not a type.
        if any(container_of(kind) is not Container.LEAF for kind in kinds):
            _check_containers(values, name)
        return self.stack([as_array(value, name) for value in values], name)

    def concatenate(
        self, arrays: Sequence[Array], name: str, starts: Sequence[int] | None = None
    ) -> Array:
        """Return arrays joined along their first dimension.

        Args:
            arrays: arrays that differ in their first dimension only.
            name: accessor of the leaf, for errors.
            starts: the numbers by which errors call the arrays; by default 0, 1, 2 and so on.

        Raises:
            InvalidArgumentError: if later dimensions or dtypes differ.
        """
        first = arrays[0]
        for i, array in enumerate(arrays):
            if array.shape[1:] != first.shape[1:] or array.dtype != first.dtype:
                one, other = (TensorSpec(each.shape[1:], each.dtype) for each in (first, array))
                raise mismatch(one, other, i if starts is None else starts[i], name)
        rows = sum(map(len, arrays))
        return np.concatenate(arrays, out=self.allocate((rows, *first.shape[1:]), first.dtype))

    def _written(self, name: str) -> Array:
        assert self._slots is not None
        return self._slots.read(name)

    def _numbers(self, values: Sequence[Any], dtype: np.dtype[Any], name: str) -> Array:
        out = self.allocate((len(values),), dtype)
        letter = _LETTERS.get(dtype)
        if letter is None:
            out[:] = values
            return out
        try:  # takes half the time of an assignment
            struct.pack_into(f"={len(values)}{letter}", out.data, 0, *values)
        except struct.error:
            value = next(value for value in values if not -(2**63) <= value < 2**63)
            raise beyond_int64(value, name) from None
        return out

    def stack(self, arrays: Sequence[Any], name: str) -> Array:
        """Return arrays or NumPy scalars of equal shape and dtype as an array.

        Raises:
            InvalidArgumentError: if shapes or dtypes differ.
        """
        shape, dtype = arrays[0].shape, arrays[0].dtype
        for i, array in enumerate(arrays):
            if array.shape != shape or array.dtype != dtype:
                raise mismatch(arrays[0], array, i, name)
        out = self.allocate((len(arrays), *shape), dtype)
        if shape and not dtype.hasobject:
            # np.stack would first make a view with a further dimension of each array.
            np.concatenate(arrays, out=out.reshape(len(arrays) * shape[0], *shape[1:]))
        else:
            for i, array in enumerate(arrays):
                out[i] = array
        return out


_LETTERS = {np.dtype(np.int64): "q", np.dtype(np.float64): "d"}  # of struct


def columns_of(values: Sequence[Any]) -> list[Sequence[Any]]:
    """Return a column per member of containers that are `alike`."""
    first = values[0]
    container = container_of(type(first))
    if container is Container.DICT:
        return [[value[key] for value in values] for key in first]
    if container is Container.DATACLASS:
        return list(zip(*([m for _, m in children(v)] for v in values), strict=True))
    return list(zip(*values, strict=True))


def alike(values: Sequence[Any]) -> bool:
    """Return whether containers have the same type and the same members."""
    first = values[0]
    container = container_of(type(first))
    if container is Container.DICT:
        keys = first.keys()
        return all(isinstance(value, dict) and value.keys() == keys for value in values)
    if container in (Container.TUPLE, Container.LIST):
        size = len(first)
        return all(container_of(type(v)) is container and len(v) == size for v in values)
    return all(type(value) is type(first) for value in values)


def _check_containers(values: Sequence[Any], name: str) -> None:
    # The outlines are slow, and made only for an error.
    if alike(values):
        return
    first = values[0]
    container = container_of(type(first))
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
    """Return the top level of a value's structure as text."""
    container = container_of(type(value))
    if container is Container.DICT:
        return f"a dict with the keys {', '.join(sorted(map(repr, value)))}"
    if container in (Container.TUPLE, Container.LIST):
        return f"a {container.value} of {len(value)}"
    if container is Container.LEAF and (value is WRITTEN or isinstance(value, np.ndarray)):
        return "an array"
    return f"a {type(value).__qualname__}"


def check_ragged_ranks(values: Sequence[RaggedArray], name: str) -> None:
    """Check that RaggedArrays, which are at `name`, are ragged in as many dimensions.

    Raises:
        InvalidArgumentError: if the structures differ.
    """
    first = values[0].ragged_rank
    for i, value in enumerate(values):
        if value.ragged_rank != first:
            raise InvalidArgumentError(
                f"cannot batch: {leaf_called(name)} is ragged in {first} dimensions in element 0 "
                f"of the batch and in {value.ragged_rank} in element {i}; return one of them from "
                "the map before"
            )


def largest_shape(values: Sequence[SparseArray], name: str) -> npt.NDArray[np.int64]:
    """Return the dense shape that all of `values`, which are at `name`, fit into.

    Raises:
        InvalidArgumentError: if the leaves differ in rank or dtype.
    """
    rank, dtype = len(values[0].dense_shape), values[0].dtype
    for i, value in enumerate(values):
        if len(value.dense_shape) != rank or value.dtype != dtype:
            raise InvalidArgumentError(
                f"cannot batch: {leaf_called(name)} is sparse with {rank} dimensions and dtype "
                f"{dtype} in element 0 of the batch and {len(value.dense_shape)} and {value.dtype} "
                f"in element {i}; give all one rank and dtype in a map before batch"
            )
    largest: npt.NDArray[np.int64] = np.max([value.dense_shape for value in values], axis=0)
    return largest


def _stack_sparse(values: Sequence[SparseArray], name: str) -> SparseArray:
    """Stack as tf.data batches sparse tensors: the row number becomes the first index.

    Each dimension is as long as in the element with the longest.
    """
    shape = largest_shape(values, name)
    counts = [len(value.indices) for value in values]
    numbers = np.repeat(np.arange(len(values), dtype=np.int64), counts)
    indices = np.concatenate([value.indices for value in values])
    return SparseArray(
        np.concatenate([numbers[:, None], indices], axis=1),
        np.concatenate([value.values for value in values]),
        np.concatenate([[len(values)], shape]),
    )
