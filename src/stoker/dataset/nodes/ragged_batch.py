"""ragged_batch: combines leaves of different lengths into RaggedArrays."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from stoker.dataset.collation.collate import Collation
from stoker.dataset.collation.leaves import as_array, leaf_called, mismatch
from stoker.dataset.nodes.batch import BatchStream, batched_cardinality, ragged_twice
from stoker.dataset.streams.failures import Origin
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.dataset.tree.table import Allocate
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec
from stoker.elements.structure import flatten, leaf_names, map_structure
from stoker.errors import InvalidArgumentError


class RaggedBatch(OneInput, frozen=True, eq=False, kw_only=True):
    """Concatenates the leaves of `batch_size` consecutive elements as rows.

    Attributes:
        batch_size: elements in a batch; the last may have fewer.
        drop_remainder: drop a last batch that has fewer.
    """

    kind: ClassVar[str] = "ragged_batch"
    batch_size: int
    drop_remainder: bool = False

    def element_spec(self) -> Spec:
        length = self.batch_size if self.drop_remainder else None

        def of_leaf(leaf: Any) -> Any:
            if isinstance(leaf, RaggedSpec):
                raise ragged_twice("ragged_batch", leaf)
            if isinstance(leaf, SparseSpec) or _is_dense(leaf):
                return type(leaf)((length, *leaf.shape), leaf.dtype)
            if isinstance(leaf, TensorSpec):
                return RaggedSpec((length, None, *leaf.shape[1:]), leaf.dtype)
            return leaf

        return map_structure(of_leaf, self.input.element_spec())

    def cardinality(self) -> int:
        return batched_cardinality(self.input.cardinality(), self.batch_size, self.drop_remainder)

    def inputs_per_element(self) -> int:
        return self.batch_size

    def open(self, context: Context) -> Stream:
        spec = self.input.element_spec()
        leaves = zip(leaf_names(spec), flatten(spec), strict=True)
        dense = frozenset(name for name, leaf in leaves if _is_dense(leaf))
        return BatchStream(
            self.input.open(context),
            self.batch_size,
            self.drop_remainder,
            partial(_lay, dense=dense, allocate=context.allocate_for(self)),
            Origin(self.kind, self.site, None),
        )


def _is_dense(spec: Any) -> bool:
    """Return True for leaves of one shape, which tf.data would stack, too."""
    return isinstance(spec, TensorSpec) and None not in spec.shape


def _lay(elements: Sequence[Any], dense: frozenset[str], allocate: Allocate) -> Any:
    return _Laid(allocate, dense).column(elements, "")


class _Laid(Collation):
    takes_lists = True

    def __init__(self, allocate: Allocate, dense: frozenset[str]) -> None:
        super().__init__(allocate)
        self._dense = dense

    def leaf(self, values: Sequence[Any], name: str) -> Any:
        if name in self._dense or type(values[0]) is SparseArray:
            return super().leaf(values, name)
        arrays = values
        if set(map(type, values)) != {np.ndarray}:
            arrays = [as_array(value, name) for value in values]
        first = arrays[0]
        if not first.ndim:
            return super().leaf(values, name)
        for i, array in enumerate(arrays):
            if array.dtype is not first.dtype and array.dtype != first.dtype:
                raise mismatch(first, array, i, name)
            if array.ndim != first.ndim or array.shape[1:] != first.shape[1:]:
                raise _ragged_behind(first, array, i, name)
        splits = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=splits[1:])
        rows = self.allocate((int(splits[-1]), *first.shape[1:]), first.dtype)
        return RaggedArray(np.concatenate(arrays, out=rows), splits)


def _ragged_behind(first: Any, other: Any, i: int, name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"cannot make a ragged batch: {leaf_called(name)} has shape {first.shape} in element 0 of "
        f"the batch and {other.shape} in element {i}, but a RaggedArray is ragged in its rows' "
        "first dimension only; transpose or pad it in a map before ragged_batch, or use "
        "padded_batch"
    )
