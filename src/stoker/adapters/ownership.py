"""Arrays that only the reader can see, which may become tensors without a copy.

An array that a function returned may be the user's own data, and an array read from a cache is
shared. The array does not say so; reference counts do: if nothing but the element refers to the
memory of an array, and nothing else refers to the element and its containers, nobody else sees the
array. NumPy's `resize` decides by reference counts, too.
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stoker.elements.structure import is_leaf, members_of, rebuild
from stoker.wire.buffers import is_lent


def next_in_list(iterator: Iterator[Any]) -> list[Any]:
    """Return a list of the next element, as for `map_leaves`; ``[]`` at the end."""
    try:
        return [next(iterator)]
    except StopIteration:
        return []


def map_leaves(holder: list[Any], convert: Callable[[Any, bool], Any]) -> Any:
    """Replace each leaf of an element by ``convert(leaf, owned)``.

    Args:
        holder: a list of the element, to be emptied: the caller must hold no further reference to
            the element.
        convert: `owned` is True for a writable array without further references.
    """
    [converted] = _mapped(holder, True, convert)
    holder.clear()
    return converted


def _mapped(container: Any, is_alone: bool, convert: Callable[[Any, bool], Any]) -> Any:
    """Return a container with converted leaves; `is_alone`: the container has no references."""
    members = members_of(container)
    for i, member in enumerate(members):
        # Here the container, `members` and `member` refer to the member.
        alone = is_alone and _is_alone(member, sys.getrefcount(member) - _limits[0])
        if is_leaf(member):
            owned = alone and type(member) is np.ndarray and _has_own_memory(member)
            members[i] = convert(member, owned)
        else:
            members[i] = _mapped(member, alone, convert)
    return rebuild(container, members)


def _is_alone(value: Any, other_references: int) -> bool:
    return other_references <= 0 and not weakref.getweakrefcount(value)


def _has_own_memory(array: Any) -> bool:
    if not array.flags.writeable:
        return False
    base = array.base
    if base is None:
        return bool(array.flags.owndata)
    if type(base) is np.ndarray and base.base is None:
        return base.flags.owndata and _is_alone(base, sys.getrefcount(base) - _limits[1])
    # Memory that the service lent belongs to the views of one element.
    return is_lent(base)


# A tensor may share the memory of an array only if nobody else can see the array, which only
# reference counts tell. (docs/decisions/091)
_limits = [0, 0]
"""References that `sys.getrefcount` counts above for an array and for its base; measured, since
the number depends on the version of Python."""


def _measure(place: int, make: Callable[[], Any]) -> None:
    while not map_leaves([make()], lambda _, owned: owned):
        _limits[place] += 1


_measure(0, lambda: np.empty(2))
_measure(1, lambda: np.empty(2)[:1])
