"""Cheap estimates of elements' memory, for limits on chunks, buffers and credit."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stoker.elements.structure import Container, children, container_of

# Size of a number, bool, None, empty str or container: an object and the pointer to it.
PLAIN_BYTES = 32

# Types of which each value takes `PLAIN_BYTES`, and has no parts.
PLAIN_TYPES = frozenset({int, float, bool, type(None), complex})


def element_bytes(element: Any) -> int:
    """Return about how many bytes `element` takes in memory; exact for the data of arrays.

    Example:
        >>> element_bytes(7), element_bytes({"image": np.zeros((10, 10)), "text": "dog"})
        (32, 899)
    """
    kind = type(element)
    if kind in PLAIN_TYPES:
        return PLAIN_BYTES
    if kind is np.ndarray:
        size = int(element.nbytes)
        if element.dtype.hasobject:
            size += sum(map(element_bytes, element.reshape(-1).tolist()))
        return PLAIN_BYTES + size
    if kind is str or kind is bytes:
        return PLAIN_BYTES + len(element)
    if kind is tuple or kind is list:
        return PLAIN_BYTES + chunk_bytes(element)
    if kind is dict:
        return PLAIN_BYTES + chunk_bytes(list(element.values()))
    if container_of(kind) is not Container.LEAF:
        return PLAIN_BYTES + sum(element_bytes(child) for _, child in children(element))
    return PLAIN_BYTES + _size_of_object(element)


def _size_of_object(element: Any) -> int:
    try:
        size = element.nbytes
    except Exception:  # noqa: BLE001 - a property of any class; sparse tensors raise RuntimeError
        return 0
    return size if isinstance(size, int) else 0


def chunk_bytes(elements: Sequence[Any]) -> int:
    """Return the sum over `elements`; of plain numbers only the types are checked."""
    if PLAIN_TYPES.issuperset(map(type, elements)):
        return PLAIN_BYTES * len(elements)
    return sum(map(element_bytes, elements))
