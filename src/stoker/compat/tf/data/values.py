"""Conversion of Python values to TensorFlow's: text is bytes, numbers are NumPy scalars."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.dataset.nodes.tensors import SEQUENCES
from stoker.dataset.tree.node import is_dataset
from stoker.elements.structure import (
    Container,
    children,
    container_of,
    map_structure,
    rebuild,
)
from stoker.errors import InvalidTypeError

_INT32 = np.iinfo(np.int32)


def as_constants(value: Any) -> Any:
    """Convert a value as TensorFlow does in `from_tensors` and `from_tensor_slices`.

    Python ints become int32 if possible and int64 otherwise, floats float32, text bytes; arrays
    keep their dtype.

    Example:
        >>> as_constants(([1, 2], {"x": 0.5, "name": "a"}))
        (array([1, 2], dtype=int32), {'x': np.float32(0.5), 'name': b'a'})
    """
    container = container_of(type(value))
    if container is Container.LIST:
        return _array_of_list(value)
    if isinstance(value, SEQUENCES):
        return _array_of_list(list(value))
    if container is not Container.LEAF:
        return rebuild(value, [as_constants(member) for _, member in children(value)])
    if type(value) is int and _INT32.min <= value <= _INT32.max:
        return np.int32(value)
    if type(value) is float:
        return np.float32(value)
    return as_bytes(value)


def _array_of_list(value: list[Any]) -> Any:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        return value  # the constructors say what is wrong with the value
    if array.dtype.kind in "USO":
        return _encoded(np.array(value, dtype=object))
    if array.dtype == np.float64 and _is_pythons(value, float | int):
        return array.astype(np.float32)
    if array.dtype == np.int64 and _is_pythons(value, int):
        # TensorFlow converts a list to int64 if one of its ints needs it.
        fits = not array.size or (_INT32.min <= array.min() and array.max() <= _INT32.max)
        return array.astype(np.int32) if fits else array
    return array


def _is_pythons(value: Any, kind: Any) -> bool:
    """Return whether the first number in nested lists is a Python number, or there is none."""
    while isinstance(value, list | tuple):
        if not value:
            return True
        value = value[0]
    return isinstance(value, kind) and not isinstance(value, np.generic)


def as_bytes(leaf: Any) -> Any:
    """Encode text as UTF-8, also in arrays; return all remaining values unchanged."""
    if isinstance(leaf, str):
        return _utf8(leaf)
    if isinstance(leaf, np.bytes_):
        return bytes(leaf)
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "USO":
        return _encoded(leaf)
    return leaf


def _utf8(text: str) -> bytes:
    """Encode text as UTF-8, and a file name that is not UTF-8 as its bytes."""
    return text.encode("utf-8", "surrogateescape")


def _encoded(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype == object and not any(isinstance(item, str) for item in array.flat):
        return array
    encoded = np.empty(array.size, dtype=object)
    encoded[:] = [
        _utf8(item) if isinstance(item, str) else bytes(item) if isinstance(item, bytes) else item
        for item in array.flat
    ]
    return encoded.reshape(array.shape)


def as_numpy(element: Any) -> Any:
    """Convert an element as tf.data's `as_numpy_iterator` does.

    Numbers become NumPy scalars that print as the number alone, as before NumPy 2 and in
    TensorFlow's examples.

    Example:
        >>> as_numpy({"x": 1, "y": [0.5, "a"]})
        {'x': 1, 'y': [0.5, b'a']}
        >>> as_numpy(1).dtype
        dtype('int64')
    """
    # Most elements are scalars; the lookup spares the walk through a structure.
    scalar = _SCALARS.get(type(element))
    return map_structure(_numpy_leaf, element) if scalar is None else scalar(element)


def _numpy_leaf(leaf: Any) -> Any:
    scalar = _SCALARS.get(type(leaf))
    if scalar is not None:
        return scalar(leaf)
    if isinstance(leaf, np.ndarray):
        if leaf.ndim and leaf.dtype.kind not in "USO":
            return leaf
        leaf = leaf if leaf.ndim else leaf[()]
    if isinstance(leaf, np.number):
        kind: Any = leaf.dtype.type
        return _plain(kind)(leaf)
    if not isinstance(leaf, bytes):
        _refuse_dataset(leaf.item(0) if isinstance(leaf, np.ndarray) and leaf.size else leaf)
    return as_bytes(leaf)


def _refuse_dataset(value: Any) -> None:
    if is_dataset(value):
        raise InvalidTypeError(
            "as_numpy_iterator() must not be called on a dataset of datasets; iterate over the "
            "dataset itself, or flatten it with flat_map"
        )


@functools.cache
def _plain(scalar: Any) -> Any:
    """Return a subclass of a NumPy scalar type whose values print as the number alone."""
    names = {"__slots__": (), "__repr__": scalar.__str__, "__module__": scalar.__module__}
    return type(scalar.__name__, (scalar,), names)


_SCALARS: dict[type, Callable[[Any], Any]] = {
    bool: np.bool_,
    int: _plain(np.int64),
    float: _plain(np.float64),
    complex: _plain(np.complex128),
    str: str.encode,
}
