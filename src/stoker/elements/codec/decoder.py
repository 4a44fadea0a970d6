"""Decoding of columns to elements; the columns are untrusted."""

import math
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stoker.elements.codec import columns as c
from stoker.elements.codec.dtypes import Dtype, from_wire
from stoker.elements.codec.encoder import OBJECT_ITEMS
from stoker.elements.codec.layout import BodyReader
from stoker.elements.codec.records import TypeResolver
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.structure import make_dataclass_instance
from stoker.errors import WireError

_Array: TypeAlias = npt.NDArray[Any]

_TAG = np.dtype("<u4")


class ElementDecoder:
    """Decodes the values in `body` by their description.

    Each value consumes at least a byte of the body before the value is made, so an invalid
    description cannot make more values than the body has bytes.
    """

    def __init__(self, body: BodyReader, types: TypeResolver) -> None:
        self.body = body
        self.types = types

    def column(self, column: c.Column, count: int, depth: int) -> list[Any]:
        """Return the `count` values of `column`.

        Raises:
            WireError, ValueError, TypeError, OverflowError: if the description is invalid.
        """
        if depth > c.MAX_DEPTH + 1:
            raise WireError(f"an element nested more than {c.MAX_DEPTH} deep")
        return _METHODS[type(column)](self, column, count, depth)

    def _nones(self, column: c.Nones, count: int, depth: int) -> list[Any]:
        self.body.filler(count)
        return [None] * count

    def _numbers(self, column: c.Numbers, count: int, depth: int) -> list[Any]:
        values: list[Any] = self.body.array(from_wire(column.dtype), count).tolist()
        return values

    def _big_ints(self, column: c.BigInts, count: int, depth: int) -> list[Any]:
        data, spans = self._pieces(count)
        return [int.from_bytes(data[a:b], "little", signed=True) for a, b in spans]

    def _strs(self, column: c.Strs, count: int, depth: int) -> list[Any]:
        view, spans = self._pieces(count)
        data = bytes(view)
        values: list[Any]
        if data.isascii():  # decoding all at a time, and then slicing, is several times as fast
            text = data.decode("ascii")
            values = [text[a:b] for a, b in spans]
        else:
            values = [data[a:b].decode(*c.TEXT) for a, b in spans]
        return list(map(np.str_, values)) if column.numpy else values

    def _blobs(self, column: c.Blobs, count: int, depth: int) -> list[Any]:
        data, spans = self._pieces(count)
        blobs = [bytes(data[a:b]) for a, b in spans]
        return list(map(np.bytes_, blobs)) if column.numpy else blobs

    def _pieces(self, count: int) -> tuple[memoryview, Iterator[tuple[int, int]]]:
        """Return the joined bytes of values of different sizes, and the span of each value."""
        sizes = self.body.sizes(count)
        total = sum(sizes)
        start = self.body.take(total)
        return self.body.view[start : start + total], _spans(sizes)

    def _scalars(self, column: c.Scalars, count: int, depth: int) -> list[Any]:
        dtype = from_wire(column.dtype)
        if not dtype.itemsize:
            self.body.filler(count)
            return [np.void(b"")] * count
        # Copied, because structured scalars are views of their array.
        return list(self.body.array(dtype, count).copy())

    def _arrays(self, column: c.Arrays, count: int, depth: int) -> list[Any]:
        dtype, shape = from_wire(column.dtype), tuple(column.shape)
        size = math.prod(shape) * dtype.itemsize
        if not size:
            self.body.filler(count)
            return [_empty_array(shape, dtype, column.fortran) for _ in range(count)]
        if size >= c.LARGE_BYTES:
            return [self._view(shape, dtype, column.fortran) for _ in range(count)]
        stored = shape[::-1] if column.fortran else shape
        start = self.body.take(count * size)
        block = np.ndarray((count, *stored), dtype, self.body.view, start)
        if column.fortran:
            return [row.copy().T for row in block]
        if not shape:
            return [item.copy().reshape(()) for item in block.reshape(count, 1)]
        return [row.copy() for row in block]

    def _view(self, shape: tuple[int, ...], dtype: Dtype, fortran: bool) -> _Array:
        start = self.body.take(math.prod(shape) * dtype.itemsize)
        return np.ndarray(shape, dtype, self.body.view, start, order=_order(fortran))

    def _varied_arrays(self, column: c.VariedArrays, count: int, depth: int) -> list[Any]:
        dtype, fortran = from_wire(column.dtype), column.fortran
        shapes = self._shapes(column.rank, count)
        if column.large:
            return [self._view(shape, dtype, fortran) for shape in shapes]
        sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
        start = self.body.take(sum(sizes))
        order = _order(fortran)
        arrays = []
        for shape, size in zip(shapes, sizes, strict=True):
            if size:
                view = np.ndarray(shape, dtype, self.body.view, start, order=order)
                arrays.append(view.copy(order=order))
            else:
                arrays.append(_empty_array(shape, dtype, fortran))
            start += size
        return arrays

    def _shapes(self, rank: int, count: int) -> list[tuple[int, ...]]:
        if not rank:
            self.body.filler(count)
            return [()] * count
        sizes = self.body.sizes(count * rank)
        return list(zip(*[iter(sizes)] * rank, strict=True))

    def _object_arrays(self, column: c.ObjectArrays, count: int, depth: int) -> list[Any]:
        shapes = self._shapes(column.rank, count)
        sizes = list(map(math.prod, shapes))
        items = self.column(column.items, sum(sizes), depth + 1)
        if not OBJECT_ITEMS.issuperset(map(type, items)):
            raise WireError("an object array that holds something other than str, bytes and None")
        arrays = []
        for shape, (a, b) in zip(shapes, _spans(sizes), strict=True):
            flat = np.empty(b - a, object)
            flat[:] = items[a:b]
            arrays.append(flat.reshape(shape[::-1]).T if column.fortran else flat.reshape(shape))
        return arrays

    def _items(self, column: c.Items, count: int, depth: int) -> list[Any]:
        rows = self._rows(column.places, count, depth)
        return rows if column.sequence == "tuple" else list(map(list, rows))

    def _rows(self, fields: list[c.Column], count: int, depth: int) -> list[tuple[Any, ...]]:
        if not fields:
            self.body.filler(count)
            return [()] * count
        return list(zip(*[self.column(field, count, depth + 1) for field in fields], strict=True))

    def _sequences(self, column: c.Sequences, count: int, depth: int) -> list[Any]:
        sizes = self.body.sizes(count)
        items = self.column(column.items, sum(sizes), depth + 1)
        lists = [items[a:b] for a, b in _spans(sizes)]
        return lists if column.sequence == "list" else list(map(tuple, lists))

    def _dicts(self, column: c.Dicts, count: int, depth: int) -> list[Any]:
        keys = column.keys
        if len(keys) != len(column.values) or len(set(keys)) < len(keys):
            raise WireError(f"a dict with the keys {keys!r:.200} and {len(column.values)} values")
        rows = self._rows(column.values, count, depth)
        return [dict(zip(keys, row, strict=True)) for row in rows]

    def _records(self, column: c.NamedRecords, count: int, depth: int) -> list[Any]:
        fields = tuple(column.fields)
        if len(fields) != len(column.values):
            raise WireError(f"a {column.kind} of {len(fields)} fields, {len(column.values)} values")
        cls = self.types.resolve(column.kind, column.name, fields)
        rows = self._rows(column.values, count, depth)
        # `__init__` and `__post_init__` have run already where the value was made.
        make: Any = tuple.__new__ if column.kind == "namedtuple" else make_dataclass_instance
        return [make(cls, row) for row in rows]

    def _raggeds(self, column: c.Raggeds, count: int, depth: int) -> list[Any]:
        values = self.column(column.values, count, depth + 1)
        row_splits = self.column(column.row_splits, count, depth + 1)
        # The values of rows that are ragged themselves are RaggedArrays, checked already.
        _check_arrays([v for v in values if type(v) is not RaggedArray], row_splits)
        return list(map(RaggedArray, values, row_splits))

    def _sparses(self, column: c.Sparses, count: int, depth: int) -> list[Any]:
        indices = self.column(column.indices, count, depth + 1)
        values = self.column(column.values, count, depth + 1)
        dense_shapes = self.column(column.dense_shape, count, depth + 1)
        _check_arrays(indices, values, dense_shapes)
        return list(map(SparseArray, indices, values, dense_shapes))

    def _mixed(self, column: c.Mixed, count: int, depth: int) -> list[Any]:
        tags = self.body.array(_TAG, count)
        if count and int(tags.max()) >= len(column.variants):
            raise WireError(f"kind {int(tags.max())} of {len(column.variants)}")
        counts = np.bincount(tags, minlength=len(column.variants)).tolist()
        variants = [
            iter(self.column(variant, size, depth + 1))
            for variant, size in zip(column.variants, counts, strict=True)
        ]
        return [next(variants[tag]) for tag in tags.tolist()]


def _order(fortran: bool) -> Literal["C", "F"]:
    return "F" if fortran else "C"


def _spans(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Return start and stop of consecutive pieces of these sizes."""
    return pairwise(accumulate(sizes, initial=0))


def _check_arrays(*parts: list[Any]) -> None:
    if any(type(part) is not np.ndarray for values in parts for part in values):
        raise WireError("a ragged or sparse array whose parts are not arrays")


def _empty_array(shape: tuple[int, ...], dtype: Dtype, fortran: bool) -> _Array:
    # Over a buffer, because np.empty turns an itemsize of 0 into one character.
    return np.ndarray(shape, dtype, bytearray(), order=_order(fortran))


_METHODS: dict[type, Callable[[ElementDecoder, Any, int, int], list[Any]]] = {
    c.Nones: ElementDecoder._nones,
    c.Numbers: ElementDecoder._numbers,
    c.BigInts: ElementDecoder._big_ints,
    c.Strs: ElementDecoder._strs,
    c.Blobs: ElementDecoder._blobs,
    c.Scalars: ElementDecoder._scalars,
    c.Arrays: ElementDecoder._arrays,
    c.VariedArrays: ElementDecoder._varied_arrays,
    c.ObjectArrays: ElementDecoder._object_arrays,
    c.Items: ElementDecoder._items,
    c.Sequences: ElementDecoder._sequences,
    c.Dicts: ElementDecoder._dicts,
    c.NamedRecords: ElementDecoder._records,
    c.Raggeds: ElementDecoder._raggeds,
    c.Sparses: ElementDecoder._sparses,
    c.Mixed: ElementDecoder._mixed,
}
