"""Arrays that only the reader can see: they may become tensors without a copy.

An array that a function returned may be the user's own data, and one that was read from a cache is
shared. Neither says so. Reference counts do: the memory of an array that nothing but the element
refers to is seen by nobody else. NumPy's `resize` decides by them, too.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from stoker.elements.structure import flatten, packer
from stoker.wire.buffers import is_lent


def map_leaves(holder: list[Any], convert: Callable[[Any, bool], Any]) -> Any:
    """Replace each leaf of an element by ``convert(leaf, owned)``.

    Args:
        holder: the element, which is removed: the caller must hold no other reference to it.
        convert: `owned` is True for an array that is writable and that nothing else refers to.
    """
    element = holder.pop()
    leaves = flatten(element)
    pack = packer(element)
    for i, leaf in enumerate(leaves):
        # Here the element, `leaves` and `leaf` refer to it.
        alone = type(leaf) is np.ndarray and sys.getrefcount(leaf) <= _limits[0]
        leaves[i] = convert(leaf, alone and _has_own_memory(leaf))
    return pack(leaves)


def _has_own_memory(array: Any) -> bool:
    if not array.flags.writeable:
        return False
    base = array.base
    if base is None:
        return True
    if type(base) is np.ndarray and base.base is None:
        return base.flags.owndata and sys.getrefcount(base) <= _limits[1]
    return is_lent(base)


_limits = [0, 0]
"""References that `sys.getrefcount` counts above for an array and for its base; measured, since
the number depends on the version of Python."""


def _measure(place: int, make: Callable[[], Any]) -> None:
    while not map_leaves([make()], lambda _, owned: owned):
        _limits[place] += 1


_measure(0, lambda: np.empty(2))
_measure(1, lambda: np.empty(2)[:1])
