"""padded_batch: pads consecutive elements to a common shape and stacks the padded elements."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from stoker.dataset.collation.collate import Array, Collation
from stoker.dataset.collation.leaves import as_array, check_ranks
from stoker.dataset.collation.padding import (
    Paddings,
    Shape,
    check_fits,
    no_array,
    padded_spec,
    padding_value,
)
from stoker.dataset.nodes.batch import Batches, BatchStream
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context
from stoker.dataset.tree.table import Allocate
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import Spec

_ONE_RANK = (
    "padding adds no dimension: return one number of dimensions from the map before padded_batch"
)


class PaddedBatch(Batches, frozen=True, eq=False, kw_only=True):
    """Pads the leaves of `batch_size` consecutive elements to a common shape, and stacks.

    Attributes:
        padding: ``(padded_shapes, padding_values)`` as the user gave them.
    """

    kind: ClassVar[str] = "padded_batch"
    padding: Pickled

    def element_spec(self) -> Spec:
        return padded_spec(self.input.element_spec(), self.length, *self.padding.value)

    def open(self, context: Context) -> Stream:
        shapes, values = self.padding.value
        allocate = context.allocate_for(self)
        stack = partial(pad, shapes=shapes, values=values, allocate=allocate)
        return BatchStream(self, context, context.open(self.input), stack)


def pad(elements: Sequence[Any], shapes: Any, values: Any, allocate: Allocate) -> Any:
    """Return a padded batch of `elements`, in which lists of numbers or text are vectors.

    Args:
        elements: at least one element.
        shapes: ``padded_shapes`` as the user gave them.
        values: ``padding_values`` as the user gave them.
        allocate: allocates the arrays.

    Raises:
        InvalidArgumentError: if the elements differ in structure, or a leaf in dtype or rank, or
            an element is larger than its padded shape.
    """
    given = Paddings(shapes, values, elements[0])
    return _Padded(allocate, given).column(elements, "")


class _Padded(Collation):
    takes_lists = True

    def __init__(self, allocate: Allocate, given: Paddings) -> None:
        super().__init__(allocate)
        self._given = given

    def empty_dtype(self, name: str) -> np.dtype[Any]:
        # All lists are empty, so only the padding value shows the dtype of the leaf.
        value = self._given[name].value
        if value is None:
            return super().empty_dtype(name)
        dtype = np.asarray(value).dtype
        return np.dtype(object) if dtype.kind in "US" else dtype

    def leaf(self, values: Sequence[Any], name: str) -> Any:
        shape, value = self._given[name]
        arrays = _arrays(values, name)
        first = arrays[0]
        if not first.ndim and not shape:
            return super().leaf(values, name)
        check_ranks(arrays, name, "cannot pad", _ONE_RANK)
        target = _target(arrays, shape, name)
        filler = _default(arrays) if value is None else padding_value(value, first.dtype, name)
        out = self.allocate((len(arrays), *target), first.dtype)
        # Each byte of vectors is written once; filling the batch first would write most bytes
        # twice.
        if first.ndim == 1:
            for row, array in zip(out, arrays, strict=True):
                size = len(array)
                row[:size] = array
                row[size:] = filler
            return out
        # A batch of arrays that have the padded shape needs no filler.
        if any(array.shape != target for array in arrays):
            out[...] = filler
        for row, array in zip(out, arrays, strict=True):
            row[tuple(map(slice, array.shape))] = array
        return out


def _arrays(values: Sequence[Any], name: str) -> Sequence[Array]:
    """Return the leaves as objects with shape and dtype."""
    kinds = set(map(type, values))
    if kinds == {np.ndarray}:
        return values
    for kind in kinds & {RaggedArray, SparseArray}:
        raise no_array(kind.__name__, name)
    return [as_array(value, name) for value in values]


def _target(arrays: Sequence[Array], shape: Shape | None, name: str) -> tuple[int, ...]:
    """Return the shape to which every leaf of the batch is padded."""
    if shape is not None:
        for i, array in enumerate(arrays):
            check_fits(array.shape, shape, name, i)
    longest = map(max, zip(*(array.shape for array in arrays), strict=True))
    if shape is None:
        return tuple(longest)
    return tuple(
        most if fixed is None else fixed for most, fixed in zip(longest, shape, strict=True)
    )


def _default(arrays: Sequence[Array]) -> Any:
    """Return zero, or the empty text of the type in the batch."""
    dtype = arrays[0].dtype
    if not dtype.hasobject:
        return np.zeros((), dtype)[()]
    items = (item for array in arrays for item in array.flat if item is not None)
    return b"" if isinstance(next(items, ""), bytes) else ""
