"""ragged_batch: combines leaves of different lengths into RaggedArrays."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from stoker.dataset.collation.collate import Collation
from stoker.dataset.collation.leaves import as_array, check_ranks, mismatch
from stoker.dataset.nodes.batch import Batches, BatchStream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context
from stoker.dataset.tree.table import Allocate
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec, with_shape
from stoker.elements.structure import flatten, leaf_names, map_structure

_ONE_RANK = "give all one number of dimensions in a map before ragged_batch"


class RaggedBatch(Batches, frozen=True, eq=False, kw_only=True):
    """Concatenates the leaves of `batch_size` consecutive elements as rows."""

    kind: ClassVar[str] = "ragged_batch"

    def element_spec(self) -> Spec:
        def of_leaf(leaf: Any) -> Any:
            if isinstance(leaf, SparseSpec | RaggedSpec) or _is_dense(leaf):
                return with_shape(leaf, (self.length, *leaf.shape), more_ragged=1)
            if isinstance(leaf, TensorSpec):
                rank = _ragged_rank(leaf)
                shape = (self.length, *[None] * rank, *leaf.shape[rank:])
                return RaggedSpec(shape, leaf.dtype, rank)
            return leaf

        return map_structure(of_leaf, self.input.element_spec())

    def open(self, context: Context) -> Stream:
        spec = self.input.element_spec()
        leaves = zip(leaf_names(spec), flatten(spec), strict=True)
        ranks = {n: _ragged_rank(leaf) for n, leaf in leaves if isinstance(leaf, TensorSpec)}
        laid = _Laid(context.allocate_for(self), ranks)
        stack = partial(laid.column, name="")
        return BatchStream(self, context, context.open(self.input), stack)


def _is_dense(spec: Any) -> bool:
    """Return True for leaves of a fixed shape, which tf.data would stack, too."""
    return isinstance(spec, TensorSpec) and None not in spec.shape


def _ragged_rank(spec: TensorSpec) -> int:
    """Return the number of dimensions up to the last of varying length, as in tf.data."""
    return max((1 + i for i, length in enumerate(spec.shape) if length is None), default=0)


class _Laid(Collation):
    takes_lists = True

    def __init__(self, allocate: Allocate, ranks: dict[str, int]) -> None:
        super().__init__(allocate)
        # Number of ragged dimensions of the leaves whose spec is known.
        self._ranks = ranks

    def leaf(self, values: Sequence[Any], name: str) -> Any:
        rank = self._ranks.get(name)
        if rank == 0 or type(values[0]) in (SparseArray, RaggedArray):
            return super().leaf(values, name)
        arrays = values
        if set(map(type, values)) != {np.ndarray}:
            arrays = [as_array(value, name) for value in values]
        first = arrays[0]
        if not first.ndim:
            return super().leaf(values, name)
        check_ranks(arrays, name, "cannot make a ragged batch", _ONE_RANK)
        # Without a declared spec only the elements show which dimensions vary, so batches may
        # differ.
        rank = rank or _varying(arrays)
        if rank > 1:
            deep = [RaggedArray.from_dense(array, rank - 1) for array in arrays]
            return super().leaf(deep, name)
        for i, array in enumerate(arrays):
            if array.shape[1:] != first.shape[1:]:  # not as the declared spec
                raise mismatch(first, array, i, name)
        splits = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=splits[1:])
        rows = self.allocate((int(splits[-1]), *first.shape[1:]), first.dtype)
        return RaggedArray(np.concatenate(arrays, out=rows), splits)


def _varying(arrays: Sequence[Any]) -> int:
    """Return the number of dimensions up to the last in which arrays of equal rank differ."""
    shapes = np.array([array.shape for array in arrays])
    return max(1, 1 + int(np.max(np.flatnonzero(np.any(shapes != shapes[0], axis=0)), initial=0)))
