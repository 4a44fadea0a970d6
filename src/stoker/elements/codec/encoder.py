"""Encoding of elements to columns."""

import struct
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from types import NoneType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stoker.elements.codec import columns as c
from stoker.elements.codec.dtypes import Dtype, to_wire
from stoker.elements.codec.layout import BodyWriter
from stoker.elements.codec.records import Description, describe
from stoker.elements.foreign import array_of, is_foreign_array
from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.errors import InvalidArgumentError

_Array: TypeAlias = npt.NDArray[Any]

# Tuples and lists up to this length get a column for each index; longer: one for all items.
MAX_PLACES = 16

# Types of the items that an object array may have.
OBJECT_ITEMS = frozenset({str, bytes, NoneType, np.str_, np.bytes_})

# Called by `map`, these take half the time of the same attributes in a loop.
_dtype_and_shape = attrgetter("dtype", "shape")
_is_only_fortran = attrgetter("flags.fnc")


class ElementEncoder:
    """Writes the values of elements to `body` while building their description.

    The encoder works on whole columns: where possible, a single C call processes all values.
    """

    def __init__(self) -> None:
        self.body = BodyWriter()

    def column(self, values: Sequence[Any], path: str, depth: int) -> c.Column:
        """Return the description of `values`, which are at `path` in their elements.

        Raises:
            InvalidArgumentError: if an element cannot be serialized.
        """
        if depth > c.MAX_DEPTH:
            raise InvalidArgumentError(
                f"{path[:100]} is nested more than {c.MAX_DEPTH} deep, or contains itself; "
                f"flatten it"
            )
        kinds = list(map(type, values))
        if not kinds:
            return self._nones(values, path, depth)
        kind = kinds[0]
        if kinds.count(kind) < len(kinds):
            return self._mixed(values, kinds, path, depth)
        method = _METHODS.get(kind)
        if method is not None:
            return method(self, values, path, depth)
        if issubclass(kind, np.generic):
            return self._scalars(values, path, depth)
        if description := describe(kind):
            return self._records(values, description, path, depth)
        if is_foreign_array(kind):
            return self.column([array_of(value, path) for value in values], path, depth)
        raise _unsupported(kind, path)

    def _mixed(
        self, values: Sequence[Any], keys: Sequence[Hashable], path: str, depth: int
    ) -> c.Column:
        groups: dict[Hashable, int] = {}
        tags = [groups.setdefault(key, len(groups)) for key in keys]
        members: list[list[Any]] = [[] for _ in groups]
        for tag, value in zip(tags, values, strict=True):
            members[tag].append(value)
        self.body.write_array(np.array(tags, "<u4"))
        return c.Mixed([self.column(group, path, depth + 1) for group in members])

    # Plain values.

    def _nones(self, values: Sequence[Any], path: str, depth: int) -> c.Column:
        self.body.filler(len(values))
        return c.Nones()

    def _bools(self, values: Sequence[bool], path: str, depth: int) -> c.Column:
        self.body.write(bytes(values), len(values))
        return c.Numbers("|b1")

    def _ints(self, values: Sequence[int], path: str, depth: int) -> c.Column:
        # Takes a third of the time of np.array.
        try:
            data = struct.pack(f"<{len(values)}q", *values)
        except struct.error:
            pieces = [n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True) for n in values]
            self._pieces(pieces)
            return c.BigInts()
        self.body.write(data, len(data))
        return c.Numbers("<i8")

    def _floats(self, values: Sequence[float], path: str, depth: int) -> c.Column:
        data = struct.pack(f"<{len(values)}d", *values)
        self.body.write(data, len(data))
        return c.Numbers("<f8")

    def _complexes(self, values: Sequence[complex], path: str, depth: int) -> c.Column:
        self.body.write_array(np.array(values, "<c16"))
        return c.Numbers("<c16")

    def _strs(self, values: Sequence[str], path: str, depth: int) -> c.Column:
        text = "".join(values)
        if text.isascii():
            self.body.write_int64(list(map(len, values)))
            self.body.write(text.encode(), len(text))
        else:
            self._pieces([_text(value, path) for value in values])
        return c.Strs(numpy=type(values[0]) is np.str_)

    def _blobs(self, values: Sequence[bytes], path: str, depth: int) -> c.Column:
        self._pieces(values)
        return c.Blobs(numpy=type(values[0]) is np.bytes_)

    def _pieces(self, pieces: Sequence[bytes]) -> None:
        sizes = list(map(len, pieces))
        self.body.write_int64(sizes)
        self.body.write_joined(pieces, sizes, c.LARGE_BYTES)

    # NumPy.

    def _scalars(self, values: Sequence[Any], path: str, depth: int) -> c.Column:
        dtype = values[0].dtype
        if dtype.isbuiltin == 1 and dtype.kind in "biufc":  # the type implies the dtype
            data = b"".join(values)
            self.body.write(data, len(data))
            return c.Scalars(_dtype(dtype, path))
        dtypes = [value.dtype for value in values]
        if len(set(dtypes)) > 1:
            return self._mixed(values, dtypes, path, depth)
        wire = _dtype(dtype, path)
        if dtype.itemsize:
            data = b"".join([value.tobytes() for value in values])
            self.body.write(data, len(data))
        else:
            self.body.filler(len(values))
        return c.Scalars(wire)

    def _arrays(self, values: Sequence[_Array], path: str, depth: int) -> c.Column:
        first = values[0]
        fortran = _is_only_fortran(first)
        if len(values) > 1:
            uniform = len(set(map(_dtype_and_shape, values))) == 1 and (
                first.ndim < 2 or len(set(map(_is_only_fortran, values))) == 1
            )
            if not uniform or first.dtype.hasobject:
                keys = [_array_group(a) for a in values]
                if len(set(keys)) > 1:
                    return self._mixed(values, keys, path, depth)
                if not first.dtype.hasobject:
                    return self._varied_arrays(values, fortran, path)
        if first.dtype == object:
            return self._object_arrays(values, fortran, path, depth)
        wire = _dtype(first.dtype, path)
        if first.nbytes:
            self._write_arrays(values, fortran, len(values) == 1 or first.nbytes >= c.LARGE_BYTES)
        else:
            self.body.filler(len(values))
        return c.Arrays(wire, list(first.shape), fortran)

    def _varied_arrays(self, values: Sequence[_Array], fortran: bool, path: str) -> c.Column:
        first = values[0]
        wire = _dtype(first.dtype, path)
        large = first.nbytes >= c.LARGE_BYTES
        self.body.write_int64([size for a in values for size in a.shape])
        self._write_arrays(values, fortran, large)
        return c.VariedArrays(wire, first.ndim, large, fortran)

    def _write_arrays(self, values: Sequence[Any], fortran: bool, singly: bool) -> None:
        if fortran:
            values = [a.T for a in values]
        if singly:
            for a in values:
                self.body.write_array(a if a.flags.c_contiguous else a.copy(order="C"))
            return
        try:
            data = b"".join(values)
        except TypeError:  # an array is not contiguous
            data = b"".join([a.tobytes() for a in values])
        self.body.write(data, len(data))

    def _object_arrays(
        self, values: Sequence[_Array], fortran: bool, path: str, depth: int
    ) -> c.Column:
        rank = values[0].ndim
        if rank:
            self.body.write_int64([size for a in values for size in a.shape])
        else:
            self.body.filler(len(values))
        flat = [(a.T if fortran else a).reshape(-1).tolist() for a in values]
        items = list(chain.from_iterable(flat))
        for kind in set(map(type, items)) - OBJECT_ITEMS:
            raise InvalidArgumentError(
                f"{path} is an object array that holds a {_name(kind)}; object arrays may hold "
                f"only str, bytes and None: return a list, or an array of another dtype"
            )
        return c.ObjectArrays(rank, self.column(items, f"{path}[...]", depth + 1), fortran)

    # Structure.

    def _sequences(self, values: Sequence[Sequence[Any]], path: str, depth: int) -> c.Column:
        kind: Literal["tuple", "list"] = "tuple" if type(values[0]) is tuple else "list"
        sizes = list(map(len, values))
        if len(set(sizes)) == 1 and sizes[0] <= MAX_PLACES:
            if not sizes[0]:
                self.body.filler(len(values))
            places = enumerate(zip(*values, strict=True))
            return c.Items(
                kind, [self.column(items, f"{path}[{i}]", depth + 1) for i, items in places]
            )
        self.body.write_int64(sizes)
        items = list(chain.from_iterable(values))
        return c.Sequences(kind, self.column(items, f"{path}[...]", depth + 1))

    def _dicts(self, values: Sequence[dict[Any, Any]], path: str, depth: int) -> c.Column:
        keys = tuple(values[0])
        if len(values) > 1:
            layouts = [tuple((type(key), key) for key in value) for value in values]
            if len(set(layouts)) > 1:
                return self._mixed(values, layouts, path, depth)
        for key in keys:
            _check_key(key, path)
        if not keys:
            self.body.filler(len(values))
        columns = [
            self.column([value[key] for value in values], f"{path}[{key!r}]", depth + 1)
            for key in keys
        ]
        return c.Dicts(list(keys), columns)

    def _records(
        self, values: Sequence[Any], description: Description, path: str, depth: int
    ) -> c.Column:
        kind, name, names = description
        if not names:
            self.body.filler(len(values))
        try:
            fields = [list(map(attrgetter(field), values)) for field in names]
        except AttributeError as error:
            raise InvalidArgumentError(
                f"{path} is a {name} with a field that was never set: {error}; set it"
            ) from error
        columns = [
            self.column(members, f"{path}.{field}", depth + 1)
            for field, members in zip(names, fields, strict=True)
        ]
        return c.NamedRecords(kind, name, list(names), columns)

    def _raggeds(self, values: Sequence[RaggedArray], path: str, depth: int) -> c.Column:
        return c.Raggeds(
            self.column([value.values for value in values], f"{path}.values", depth + 1),
            self.column([value.row_splits for value in values], f"{path}.row_splits", depth + 1),
        )

    def _sparses(self, values: Sequence[SparseArray], path: str, depth: int) -> c.Column:
        return c.Sparses(
            self.column([value.indices for value in values], f"{path}.indices", depth + 1),
            self.column([value.values for value in values], f"{path}.values", depth + 1),
            self.column([value.dense_shape for value in values], f"{path}.dense_shape", depth + 1),
        )


_METHODS: dict[type, Callable[[ElementEncoder, Sequence[Any], str, int], c.Column]] = {
    NoneType: ElementEncoder._nones,
    bool: ElementEncoder._bools,
    int: ElementEncoder._ints,
    float: ElementEncoder._floats,
    complex: ElementEncoder._complexes,
    str: ElementEncoder._strs,
    np.str_: ElementEncoder._strs,
    bytes: ElementEncoder._blobs,
    np.bytes_: ElementEncoder._blobs,
    np.ndarray: ElementEncoder._arrays,
    np.memmap: ElementEncoder._arrays,
    tuple: ElementEncoder._sequences,
    list: ElementEncoder._sequences,
    dict: ElementEncoder._dicts,
    RaggedArray: ElementEncoder._raggeds,
    SparseArray: ElementEncoder._sparses,
}


def _array_group(array: _Array) -> Hashable:
    return array.dtype, array.ndim, _is_only_fortran(array), array.nbytes >= c.LARGE_BYTES


def _dtype(dtype: Dtype, path: str) -> Any:
    try:
        return to_wire(dtype)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}") from error


def _text(value: str, path: str) -> bytes:
    """Return `value` in UTF-8, or the bytes of a file name that is not UTF-8."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        with suppress(UnicodeEncodeError):
            data = value.encode(*c.TEXT)
            # Escaped bytes that form valid UTF-8 would be decoded to another text.
            if data.decode(*c.TEXT) == value:
                return data
        return _utf8(value, path)


def _utf8(value: str, path: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{path} is the str {value[:60]!r}, which cannot be encoded as UTF-8 (a lone surrogate "
            f'at {error.start}); make it bytes first: value.encode("utf-8", "surrogateescape")'
        ) from error


def _check_key(key: object, path: str) -> None:
    if type(key) is str:
        _utf8(key, f"a key of {path}")
    elif type(key) is not int:
        raise InvalidArgumentError(
            f"{path} is a dict with the key {key!r:.100}, a {_name(type(key))}; keys must be str "
            f"or int: convert it"
        )
    elif not -(2**63) <= key < 2**63:
        raise InvalidArgumentError(
            f"{path} is a dict with the key {key}, which is beyond int64; make it a str"
        )


def _unsupported(kind: type, path: str) -> InvalidArgumentError:
    bases = [base for base in (dict, list, tuple, int, float, str, bytes) if issubclass(kind, base)]
    if issubclass(kind, np.ndarray):
        advice = "convert it with np.asarray, which drops what the subclass adds"
    elif bases:
        advice = f"convert it with {bases[0].__name__}(...)"
    elif hasattr(kind, "__array__"):
        advice = "convert it with np.asarray"
    else:
        advice = (
            "return arrays, numbers, bool, str, bytes, None, or tuples, lists, dicts, namedtuples "
            "and dataclasses of them"
        )
    return InvalidArgumentError(f"{path} is a {_name(kind)}, which cannot be serialized; {advice}")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
