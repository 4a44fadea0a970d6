"""Protection of elements that several readers get: none can change them for the others."""

from collections.abc import Callable
from typing import Any

import numpy as np

from stoker.elements.ragged import RaggedArray
from stoker.elements.sparse import SparseArray
from stoker.elements.structure import (
    Container,
    children,
    container_of,
    field_names,
    make_dataclass_instance,
    rebuild,
)

_IMMUTABLE = frozenset({int, float, bool, complex, str, bytes, type(None)})


def frozen(element: Any) -> Any:
    """Return the element with read-only arrays, which are not copied."""
    if type(element) in _IMMUTABLE:
        return element
    return _map(_frozen_leaf, element)


def fresh(elements: list[Any]) -> list[Any]:
    """Return the elements in new containers: a reader may change its dict, not the others'."""
    if _is_immutable(elements):
        return elements
    return [_map(_same, element) for element in elements]


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """Map the leaves, but skip lists of numbers, which may be thousands of tokens."""
    container = container_of(type(value))
    if container is Container.LEAF:
        return function(value)
    if container is Container.LIST:
        return list(value) if _is_immutable(value) else [_map(function, item) for item in value]
    if container is Container.TUPLE:
        return tuple([_map(function, member) for member in value])
    if container is Container.DICT:
        return {key: _map(function, member) for key, member in value.items()}
    return rebuild(value, [_map(function, member) for _, member in children(value)])


def _same(leaf: Any) -> Any:
    return leaf


def _is_immutable(values: list[Any]) -> bool:
    return set(map(type, values)) <= _IMMUTABLE


def _frozen_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        if not leaf.flags.writeable:
            return leaf
        view = leaf.view()
        view.flags.writeable = False
        return view
    if isinstance(leaf, RaggedArray | SparseArray):
        cls = type(leaf)
        arrays = [_frozen_leaf(getattr(leaf, name)) for name in field_names(cls)]
        return make_dataclass_instance(cls, arrays)
    return leaf
