"""Check that elements can be encoded, and compute their size, mostly without encoding."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

from stoker.elements.codec.elements import encode_elements
from stoker.elements.sizes import PLAIN_BYTES, PLAIN_TYPES, chunk_bytes

# Deeper elements are encoded, which also finds elements that contain themselves.
_MAX_DEPTH = 4

_NUMERIC = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))

_dtype = attrgetter("dtype")
_nbytes = attrgetter("nbytes")


# Elements are checked where computed, so that an element that cannot be encoded is an error at its
# position, on every transport. (docs/decisions/064)
def encodable_bytes(elements: list[Any]) -> int:
    """Check that `elements` can be encoded; return their `chunk_bytes`.

    Raises:
        InvalidArgumentError: if a value cannot be serialized; the message names its type and place.
    """
    size = _size_by_types(elements, _MAX_DEPTH)
    if size is None:
        encode_elements(elements)  # raises the error that names the value and its place
        size = chunk_bytes(elements)
    return size


def _size_by_types(values: list[Any], depth: int) -> int | None:
    """Return `chunk_bytes` of `values`; None if their types and dtypes do not suffice.

    An array of 1 KiB takes 60 ns here, and 1,100 ns to encode and to compute the size.
    """
    kinds = set(map(type, values))
    size = PLAIN_BYTES * len(values)
    for kind in kinds - PLAIN_TYPES:
        alike = values if len(kinds) == 1 else [value for value in values if type(value) is kind]
        more = None
        if kind in _LEAVES:
            more = _LEAVES[kind](alike)
        elif kind in _CONTAINERS and depth:
            members = _CONTAINERS[kind](alike)
            more = None if members is None else _size_by_types(members, depth - 1)
        if more is None:
            return None
        size += more
    return size


def _data_of_arrays(arrays: list[Any]) -> int | None:
    return sum(map(_nbytes, arrays)) if _NUMERIC.issuperset(map(_dtype, arrays)) else None


def _length_of_texts(texts: list[str]) -> int | None:
    return sum(map(len, texts)) if all(map(str.isascii, texts)) else None


def _length_of_blobs(blobs: list[bytes]) -> int:
    return sum(map(len, blobs))


def _data_of_scalars(itemsize: int, scalars: list[Any]) -> int:
    return itemsize * len(scalars)


def _items(sequences: list[Any]) -> list[Any]:
    return list(chain.from_iterable(sequences))


def _values(dicts: list[dict[Any, Any]]) -> list[Any] | None:
    for key in set(chain.from_iterable(dicts)):
        if type(key) is not str or not key.isascii():
            return None
    return list(chain.from_iterable(map(dict.values, dicts)))


# Bytes of leaves besides `PLAIN_BYTES` each; None if a leaf may not be encodable.
_LEAVES: dict[type, Callable[[list[Any]], int | None]] = {
    np.ndarray: _data_of_arrays,
    str: _length_of_texts,
    bytes: _length_of_blobs,
    **{dtype.type: partial(_data_of_scalars, dtype.itemsize) for dtype in _NUMERIC},
}

# Members of all containers in a single list.
_CONTAINERS: dict[type, Callable[[list[Any]], list[Any] | None]] = {
    tuple: _items,
    list: _items,
    dict: _values,
}
