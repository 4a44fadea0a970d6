"""About how many bytes an element holds, for bounds on buffers and chunks."""

from typing import Any

from stoker.dataset.structure import Container, container_of, flatten

# What a small Python object takes: a number, a reference, the head of a string.
_OBJECT_BYTES = 32

_SMALL = frozenset({int, float, bool, complex, type(None)})


def element_bytes(element: Any) -> int:
    """About how many bytes `element` holds."""
    cls = type(element)
    if cls in _SMALL:
        return _OBJECT_BYTES
    if container_of(cls) is Container.LEAF:
        return _leaf_bytes(element)
    return _OBJECT_BYTES + sum(map(_leaf_bytes, flatten(element)))


def _leaf_bytes(leaf: Any) -> int:
    if isinstance(leaf, str | bytes | bytearray):
        return _OBJECT_BYTES + len(leaf)
    size = getattr(leaf, "nbytes", 0)
    return _OBJECT_BYTES + (size if isinstance(size, int) else 0)
