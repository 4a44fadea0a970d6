"""rebatch: batches of another size, by cutting and joining arrays."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stoker.dataset.collation.batch_reader import BatchReader
from stoker.dataset.collation.collate import Collation, check_ragged_ranks, largest_shape
from stoker.dataset.collation.leaves import leaf_called
from stoker.dataset.collation.rows import as_rows, row_spec, rows_in_spec
from stoker.dataset.collation.vectors import vector
from stoker.dataset.nodes.unbatch import unbatched_cardinality
from stoker.dataset.streams.failures import raise_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, OneInput
from stoker.dataset.tree.table import Allocate
from stoker.elements.ragged import RaggedArray, concatenated
from stoker.elements.sizes import element_bytes
from stoker.elements.sparse import SparseArray
from stoker.elements.spec import RaggedSpec, SparseSpec, Spec, TensorSpec, with_shape
from stoker.elements.structure import flatten, map_structure
from stoker.errors import InvalidArgumentError


class Rebatch(OneInput, frozen=True, eq=False, kw_only=True):
    """Makes batches of the rows of batches.

    Attributes:
        sizes: rows in a batch, cycled through; the last batch may have fewer. Some may be 0.
        drop_remainder: drop a last batch that has fewer.
    """

    kind: ClassVar[str] = "rebatch"
    sizes: tuple[int, ...]
    drop_remainder: bool = False

    def element_spec(self) -> Spec:
        spec = self.input.element_spec()
        row_spec(spec)  # raises where there are no rows
        length = self.sizes[0] if len(set(self.sizes)) == 1 else None
        if length is not None and not self.drop_remainder:
            # No batch is short if all batches of the input have a multiple of its rows.
            rows = rows_in_spec(spec)
            length = length if rows is not None and rows % length == 0 else None

        def of_leaf(leaf: Any) -> Any:
            if isinstance(leaf, TensorSpec | RaggedSpec | SparseSpec) and leaf.shape:
                return with_shape(leaf, (length, *leaf.shape[1:]))
            return leaf

        return map_structure(of_leaf, spec)

    def cardinality(self) -> int:
        rows = unbatched_cardinality(self.input)
        if rows < 0 or (rows == 0 and _empty_batch(self.input.element_spec()) is None):
            return rows
        batches, last = _batches_of(rows, 0, self.sizes)
        return batches + (last > 0 and not self.drop_remainder)

    def open(self, context: Context) -> Stream:
        return _RebatchStream(self, context.open(self.input), context.allocate_for(self))


def _batches_of(rows: int, first: int, sizes: Sequence[int]) -> tuple[int, int]:
    """Return the number of full batches in `rows` rows from size `first`, and the rows left."""
    cycles, rows = divmod(rows, sum(sizes))
    batches = cycles * len(sizes)
    while rows >= (size := sizes[(first + batches) % len(sizes)]):
        rows -= size
        batches += 1
    return batches, rows


class _RebatchStream(Stream):
    """Reads the same positions as unbatch and batch: a batch that fails counts as a single row.

    The output batch with such a row fails; the error occupies one position and all its rows.
    """

    def __init__(self, node: Rebatch, stream: Stream, allocate: Allocate) -> None:
        self._sizes = node.sizes
        self._drop_remainder = node.drop_remainder
        self._origin = node.origin
        self._reader = BatchReader(stream, partial(as_rows, vector=vector), self._origin)
        self._join = _Joined(allocate)
        self._index = 0
        self._empty = _empty_batch(node.input.element_spec())
        self._ended = False

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        try:
            chunk = [self._next(1 if lazy else max_elements, max_bytes)]
        except StopIteration:
            return []
        if lazy or max_elements == 1:
            return chunk
        max_bytes -= element_bytes(chunk[0])
        while len(chunk) < max_elements and max_bytes > 0 and self._is_next_ready():
            chunk.append(self._next(1, 1))
            max_bytes -= element_bytes(chunk[-1])
        return chunk

    def advance(self, n: int) -> int:
        cycles, more = divmod(n, len(self._sizes))
        first = self._index % len(self._sizes)
        rows = cycles * sum(self._sizes)
        rows += sum(self._sizes[(first + i) % len(self._sizes)] for i in range(more))
        if self._ended:
            return 0
        passed = self._reader.advance(rows)
        if passed == rows:
            self._index += n
            return n
        batches, last = _batches_of(passed, first, self._sizes)
        if not passed and self._reader.rows is None and self._empty is None:
            # A batch of size 0 has the structure of a batch before, or of a complete spec.
            batches = 0  # nothing tells the structure of an empty batch
        batches += last > 0 and not self._drop_remainder
        self._index += batches
        self._ended = True
        return batches

    def close(self) -> None:
        self._reader.close()

    def _is_next_ready(self) -> bool:
        """Return whether the next batch can be cut from the rows that were read."""
        return not self._ended and self._reader.left >= max(1, self._size())

    def _size(self) -> int:
        return self._sizes[self._index % len(self._sizes)]

    def _next(self, max_batches: int, max_bytes: int) -> Any:
        reader, size = self._reader, self._size()
        if size == 0:
            return self._next_empty(max_batches, max_bytes)
        pieces: list[Any] = []
        have = 0
        while have < size:
            if reader.left:
                start, stop = reader.use(size - have)
                pieces.append(_cut(reader.rows, start, stop))
                have += stop - start
                continue
            try:
                reader.open_next(max_batches, max_bytes)
            except StopIteration:
                self._ended = True
                if self._drop_remainder or not pieces:
                    raise
                break
            except Exception:
                self._pass_failed(size - have - 1)
                raise
        index = self._index
        self._index += 1
        # A batch that lies within an element of the input is a view, not a copy.
        if len(pieces) == 1:
            return map_structure(_owned, pieces[0])
        try:
            return self._join.column(pieces, "")
        except Exception as error:  # noqa: BLE001 - marked with its position
            raise_failure(error, self._origin._replace(index=index))

    def _next_empty(self, max_batches: int, max_bytes: int) -> Any:
        """Return a batch of no rows, as between full batches in tf.data, but not after the end."""
        if self._ended:
            raise StopIteration
        self._index += 1
        if self._reader.rows is None and self._empty is None:
            try:
                self._reader.open_next(max_batches, max_bytes)
            except StopIteration:
                self._ended = True
                raise
            except Exception as error:
                self._reader.keep(error)  # its row is in a later batch, which fails too
                raise
        rows = self._reader.rows
        return self._empty if rows is None else map_structure(_owned, _cut(rows, 0, 0))

    def _pass_failed(self, rest: int) -> None:
        passed = self._reader.advance(rest)
        if passed < rest and self._drop_remainder:  # the batch would not have been delivered
            raise StopIteration
        self._index += 1


def _empty_batch(spec: Spec) -> Any:
    """Return a batch without rows of the batches of `spec`; None if the spec is incomplete."""
    leaves = flatten(spec)
    if not all(isinstance(leaf, TensorSpec) and None not in leaf.shape[1:] for leaf in leaves):
        return None
    return map_structure(lambda leaf: np.empty((0, *leaf.shape[1:]), leaf.dtype), spec)


def _cut(rows: Any, start: int, stop: int) -> Any:
    """Return the rows from `start` to `stop` as a batch of views."""
    return map_structure(lambda leaf: _cut_leaf(leaf, start, stop), rows)


def _cut_leaf(leaf: Any, start: int, stop: int) -> Any:
    if leaf is None:
        return None
    if isinstance(leaf, RaggedArray):
        return leaf.rows(start, stop)
    if isinstance(leaf, SparseArray):
        first, last = np.searchsorted(leaf.indices[:, 0], (start, stop))
        indices = leaf.indices[first:last].copy()
        indices[:, 0] -= start
        shape = np.concatenate([[stop - start], leaf.dense_shape[1:]])
        return SparseArray(indices, leaf.values[first:last], shape)
    return leaf[start:stop]


def _owned(leaf: Any) -> Any:
    """Return the leaf, or a copy of a read-only leaf, such as the leaves of sources."""
    if isinstance(leaf, RaggedArray):
        return RaggedArray(_owned(leaf.values), leaf.row_splits)
    if isinstance(leaf, SparseArray):
        return SparseArray(leaf.indices, _owned(leaf.values), leaf.dense_shape)
    # Users may write to the batches that they read; memory of sources is read-only.
    return leaf if leaf is None or leaf.flags.writeable else leaf.copy()


class _Joined(Collation):
    """Joins pieces of batches where `Collation` stacks elements."""

    def leaf(self, values: Sequence[Any], name: str) -> Any:
        kinds = set(map(type, values))
        if len(kinds) > 1:
            raise InvalidArgumentError(
                f"cannot join: {leaf_called(name)} is in one batch a "
                f"{' and in another a '.join(sorted(kind.__name__ for kind in kinds))}; return one "
                "of them from the map before"
            )
        if kinds == {type(None)}:
            return None
        if kinds == {RaggedArray}:
            check_ragged_ranks(values, name)
            return concatenated(values, partial(self._joined, name=name))
        if kinds == {SparseArray}:
            return self._sparse(values, name)
        return self._joined(values, name)

    def _sparse(self, values: Sequence[SparseArray], name: str) -> SparseArray:
        shape, rows = largest_shape(values, name)[1:], 0
        parts = []
        for value in values:
            indices = value.indices.copy()
            # The row numbers of each piece begin at 0.
            indices[:, 0] += rows
            parts.append(indices)
            rows += len(value)
        items = self._joined([value.values for value in values], name)
        return SparseArray(np.concatenate(parts), items, np.concatenate([[rows], shape]))

    def _joined(self, arrays: Sequence[npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
        return self.concatenate(arrays, name, [0, *accumulate(map(len, arrays))])
