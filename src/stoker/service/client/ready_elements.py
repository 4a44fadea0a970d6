"""Received elements that the reader has not taken."""

from collections import deque
from collections.abc import Iterator
from typing import Any

_FEW = 64
_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})


def ready_elements(elements: list[Any]) -> Iterator[Any]:
    """Return an iterator of a received chunk, with a length hint.

    The elements of a short chunk are moved from the list, whose length remains, to an iterator that
    forgets them as it yields them: an adapter makes a tensor of an array without a copy if only the
    reader refers to it. That pays for large elements, of which a chunk holds few. Plain elements
    stay: their list may be that of a worker in this process.
    """
    if len(elements) > _FEW or _PLAIN.issuperset(map(type, elements)):
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
