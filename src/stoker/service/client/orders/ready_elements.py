"""Received elements that the reader has not taken."""

import itertools
from collections.abc import Iterator
from typing import Any

from stoker.wire.transports.local import PLAIN

_LARGE_BYTES = 16 << 10
"""Smaller elements are cheaper to copy than to yield from `_Releasing`."""


def ready_elements(elements: list[Any], nbytes: int) -> Iterator[Any]:
    """Return an iterator of a received chunk, with a length hint.

    Large elements are moved from the list, whose length remains, to an iterator that forgets them
    as it yields them: an adapter makes a tensor of an array without a copy if only the reader
    refers to it. (In a coordinated read the order refers to the latest one, which it may have to
    repeat.) A list of text or bytes stays: it may be that of a worker in this process.

    Args:
        elements: at least one.
        nbytes: about how many bytes they take.
    """
    if nbytes < _LARGE_BYTES * len(elements) or type(elements[0]) in PLAIN:
        return iter(elements)
    moved = _Releasing(elements)
    elements[:] = [None] * len(elements)
    return moved


class _Releasing(map):  # type: ignore[type-arg]
    """Iterator that refers to no element that it has yielded.

    A ``map`` of ``list.pop``, as a ``__next__`` in Python takes twice as long.
    """

    __slots__ = ("_left",)
    _left: list[Any]

    def __new__(cls, elements: list[Any]) -> "_Releasing":
        left = elements[::-1]
        self = super().__new__(cls, list.pop, itertools.repeat(left, len(left)))
        self._left = left
        return self

    def __length_hint__(self) -> int:
        return len(self._left)
