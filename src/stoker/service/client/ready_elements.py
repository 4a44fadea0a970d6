"""Received elements that the reader has not taken."""

from collections import deque
from collections.abc import Iterator
from typing import Any

from stoker.elements.sizes import element_bytes

_LARGE_BYTES = 16 << 10
"""Smaller elements are cheaper to copy than to yield from `_Releasing`."""

_PLAIN = frozenset({str, bytes})


def ready_elements(elements: list[Any]) -> Iterator[Any]:
    """Return an iterator of a received chunk, with a length hint.

    Large elements are moved from the list, whose length remains, to an iterator that forgets them
    as it yields them: an adapter makes a tensor of an array without a copy if only the reader
    refers to it. Text and bytes stay: their list may be that of a worker in this process.
    """
    if type(elements[0]) in _PLAIN or element_bytes(elements[0]) < _LARGE_BYTES:
        return iter(elements)
    moved = _Releasing(elements)
    elements[:] = [None] * len(elements)
    return moved


class _Releasing(Iterator[Any]):
    """Iterator that refers to no element that it has yielded."""

    def __init__(self, elements: list[Any]) -> None:
        self._left = deque(elements)

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        return self._left.popleft()

    def __length_hint__(self) -> int:
        return len(self._left)
