"""Batches cut into rows along their first dimension."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from stoker.dataset.collation.leaves import leaf_called
from stoker.dataset.collation.vectors import is_vector, write_text
from stoker.elements.foreign import array_of
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec, with_shape
from stoker.elements.structure import (
    Container,
    children,
    container_of,
    flatten,
    is_leaf,
    leaf_names,
    map_structure,
    rebuild,
)
from stoker.errors import InvalidArgumentError

Cut = Callable[[int, int], list[Any]]
"""Returns the rows from start to stop as a list."""


def slicer(structure: Any) -> Cut:
    """Return the function that cuts rows of a structure into elements.

    Args:
        structure: a nest of arrays, RaggedArrays and SparseArrays of equal number of rows, and
            None,
            which is in each element.
    """
    leaves = [_leaf_slicer(leaf) for leaf in flatten(structure)]
    build = row_builder(structure)
    return lambda start, stop: build([leaf(start, stop) for leaf in leaves])


def row_builder(structure: Any) -> Callable[[Sequence[list[Any]]], list[Any]]:
    """Return the function that combines a list of values per leaf into a list of elements.

    The function is specialized for the nesting of the structure, and runs once for each chunk.
    """
    container = container_of(type(structure))
    if container is Container.LEAF:
        return lambda leaves: leaves[0]
    flat = all(is_leaf(member) for _, member in children(structure))
    if flat and container is Container.TUPLE:
        return lambda leaves: list(zip(*leaves, strict=True))
    if flat and container is Container.DICT:
        keys = list(structure)
        return lambda leaves: [
            dict(zip(keys, row))  # noqa: B905
            for row in zip(*leaves, strict=True)
        ]
    return lambda leaves: _rows_of(structure, iter(leaves), len(leaves[0]))


def _rows_of(structure: Any, columns: Iterator[list[Any]], count: int) -> list[Any]:
    """Build `count` elements from a column per leaf, container by container.

    Building element by element takes 10 to 40 times as long for nested structures.
    """
    container = container_of(type(structure))
    if container is Container.LEAF:
        return next(columns)
    members = [_rows_of(member, columns, count) for _, member in children(structure)]
    if not members:
        return [rebuild(structure, ()) for _ in range(count)]
    rows = zip(*members, strict=True)
    if container is Container.TUPLE:
        return list(rows)
    if container is Container.DICT:
        keys = list(structure)
        return [dict(zip(keys, row)) for row in rows]  # noqa: B905
    return [rebuild(structure, row) for row in rows]


def _leaf_slicer(leaf: Any) -> Cut:
    if leaf is None:
        return lambda start, stop: [None] * (stop - start)
    if isinstance(leaf, np.ndarray):
        return lambda start, stop: list(leaf[start:stop])
    if isinstance(leaf, RaggedArray):
        values, splits = leaf.values, leaf.row_splits
        if isinstance(values, RaggedArray):
            return lambda start, stop: list(map(leaf.__getitem__, range(start, stop)))
        return lambda start, stop: [
            values[a:b] for a, b in pairwise(splits[start : stop + 1].tolist())
        ]
    leaf = in_row_order(leaf)
    indices, items, shape = leaf.indices[:, 1:], leaf.values, leaf.dense_shape[1:]
    # The items are in the order of rows, so each row is a run of items.
    begins = np.searchsorted(leaf.indices[:, 0], np.arange(len(leaf) + 1))

    def sparse_rows(start: int, stop: int) -> list[Any]:
        runs = pairwise(begins[start : stop + 1].tolist())
        return [SparseArray(indices[a:b], items[a:b], shape) for a, b in runs]

    return sparse_rows


def in_row_order(sparse: SparseArray) -> SparseArray:
    """Return the array with its items ordered by row; the order within a row is kept."""
    numbers = sparse.indices[:, 0]
    if not np.any(numbers[1:] < numbers[:-1]):
        return sparse
    order = np.argsort(numbers, kind="stable")
    return SparseArray(sparse.indices[order], sparse.values[order], sparse.dense_shape)


def as_rows(batch: Any, vector: Callable[[list[Any], str], Any], name: str = "") -> Any:
    """Return the batch with leaves that can be cut into rows.

    Args:
        batch: a nest of arrays, RaggedArrays, SparseArrays and lists of numbers or text.
        vector: converts such a list to an array.
        name: accessor of `batch`, for errors.

    Raises:
        InvalidArgumentError: if a leaf has no rows; the message names the leaf.
    """
    container = container_of(type(batch))
    if container is Container.LIST and is_vector(batch):
        return vector(batch, name)
    if container is not Container.LEAF:
        members = [as_rows(member, vector, name + step) for step, member in children(batch)]
        return rebuild(batch, members)
    if isinstance(batch, RaggedArray):
        return batch
    if isinstance(batch, SparseArray):
        if len(batch.dense_shape):
            batch.check_indices()
            return in_row_order(batch)
    elif batch is None and name:  # beside arrays, as in tf.data
        return None
    elif not isinstance(batch, np.generic) and hasattr(batch, "__array__"):
        array = array_of(batch, name)
        if array.ndim == 1 and array.dtype.kind in "US":  # rows of text are str and bytes
            return write_text(np.empty(len(array), object), list(array))
        if array.ndim:
            return array
    raise InvalidArgumentError(
        f"cannot unbatch: {leaf_called(name)} ({batch!r:.80}) has no first dimension to cut into "
        "rows; batch the elements first, or return arrays from the map before"
    )


def list_as_objects(items: Sequence[Any], name: str = "") -> Any:  # noqa: ARG001 - as `vector`
    """Return the sequence as an object array of its items."""
    # np.array would take items that are sequences for further dimensions.
    array = np.empty(len(items), object)
    array[:] = items
    return array


def row_count(structure: Any) -> int:
    """Return the number of rows of a structure of `as_rows`.

    Raises:
        InvalidArgumentError: if two leaves differ in the number of rows, or there is no leaf.
    """
    counts = {len(leaf) for leaf in flatten(structure) if leaf is not None}
    if len(counts) != 1:
        leaves = zip(leaf_names(structure), flatten(structure), strict=True)
        raise _rows_differ({name: len(leaf) for name, leaf in leaves if leaf is not None})
    return counts.pop()


def _rows_differ(counts: Mapping[str, int]) -> InvalidArgumentError:
    if not counts:
        return InvalidArgumentError("cannot unbatch: the element holds no array to cut into rows")
    listed = ", ".join(f"the leaf {name} has {count}" for name, count in counts.items())
    return InvalidArgumentError(
        f"cannot unbatch: all leaves must have the same number of rows; {listed}"
    )


def row_spec(spec: Spec) -> Spec:
    """Return the spec of the rows of batches of `spec`.

    Raises:
        InvalidArgumentError: if a leaf has no first dimension, or two differ in it.
    """
    rows_in_spec(spec)

    def of_leaf(leaf: Any) -> Any:
        if isinstance(leaf, TensorSpec | RaggedSpec | SparseSpec):
            return with_shape(leaf, leaf.shape[1:], more_ragged=-1)
        return leaf

    return map_structure(of_leaf, spec)


def rows_in_spec(spec: Spec) -> int | None:
    """Return the number of rows of each batch; ``None`` if unknown.

    Raises:
        InvalidArgumentError: if a leaf has no first dimension, or two differ in it.
    """
    known: dict[str, int] = {}
    for name, leaf in zip(leaf_names(spec), flatten(spec), strict=True):
        if not isinstance(leaf, TensorSpec | RaggedSpec | SparseSpec):
            continue
        if not leaf.shape and name and leaf.dtype == object:
            continue  # None, or text, which is an error when read
        if not leaf.shape:
            raise InvalidArgumentError(
                f"cannot unbatch: {leaf_called(name)} has the spec {leaf} and no first dimension "
                "to cut into rows; batch the elements first"
            )
        if leaf.shape[0] is not None:
            known[name] = leaf.shape[0]
    if len(set(known.values())) > 1:
        raise _rows_differ(known)
    return next(iter(known.values()), None)
