"""Protection of elements that several readers get: none can change them for the others."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.structure import (
    Container,
    container_of,
    field_names,
    make_dataclass_instance,
    members_of,
    rebuild,
)

_IMMUTABLE = frozenset({int, float, bool, complex, str, bytes, type(None)})


def frozen(element: Any) -> Any:
    """Return the element with read-only arrays, which are not copied."""
    if type(element) in _IMMUTABLE:
        return element
    return _map(partial(map_arrays, _read_only), element)


def fresh(elements: list[Any]) -> list[Any]:
    """Return the elements in new containers: a reader may change its dict, not the others'."""
    if _is_immutable(elements):
        return elements
    return [_map(lambda leaf: leaf, element) for element in elements]


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """Map the leaves, but skip lists of numbers, which may be thousands of tokens."""
    container = container_of(type(value))
    if container is Container.LEAF:
        return function(value)
    if container is Container.LIST:
        return list(value) if _is_immutable(value) else [_map(function, item) for item in value]
    if container is Container.DICT:  # the usual element, and faster than by `rebuild`
        return {key: _map(function, member) for key, member in value.items()}
    return rebuild(value, [_map(function, member) for member in members_of(value)])


def _is_immutable(values: list[Any]) -> bool:
    return set(map(type, values)) <= _IMMUTABLE


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def map_arrays(function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], leaf: Any) -> Any:
    """Return a leaf with each of its arrays, of which ragged and sparse leaves have several."""
    if isinstance(leaf, np.ndarray):
        return function(leaf)
    if isinstance(leaf, RaggedArray | SparseArray):
        arrays = [map_arrays(function, getattr(leaf, name)) for name in field_names(type(leaf))]
        return make_dataclass_instance(type(leaf), arrays)
    return leaf
