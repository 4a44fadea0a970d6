"""A bounded buffer of elements, filled and emptied in chunks."""

from collections import deque
from typing import Any

from stoker.dataset.streams.failures import Failure
from stoker.elements.sizes import element_bytes


class ChunkBuffer:
    """Elements and failures in order; only one thread at a time may use the buffer.

    Args:
        max_elements: the most elements; the last added chunk may exceed this number.
        max_bytes: about the most bytes, by the size of the first element of each chunk.

    Attributes:
        unit: approximate size of an element of the last chunk.
    """

    def __init__(self, max_elements: int, max_bytes: int) -> None:
        self._max_elements = max_elements
        self._max_bytes = max_bytes
        self._chunks: deque[list[Any]] = deque()
        """The chunks, none of them empty; a failure is alone in its chunk."""
        self._held = 0
        self.unit = 1

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def room(self) -> int:
        """Return the number of elements that fit, 0 if the buffer is full."""
        if self._held * self.unit >= self._max_bytes:
            return 0
        return max(0, self._max_elements - self._held)

    def filled(self) -> float:
        """Return the fraction of the capacity that is used."""
        used = max(self._held / self._max_elements, self._held * self.unit / self._max_bytes)
        return min(1.0, used)

    def half_empty(self) -> bool:
        """Return whether at most half of the capacity is used."""
        twice = 2 * self._held
        return twice <= self._max_elements and twice * self.unit <= self._max_bytes

    def fails_next(self) -> bool:
        """Return whether the first item is a failure."""
        return bool(self._chunks) and isinstance(self._chunks[0][0], Failure)

    def put(self, items: list[Any]) -> None:
        """Add elements, or a failure."""
        if not items:
            return
        self._chunks.append(items)
        self._held += len(items)
        if not isinstance(items[0], Failure):
            # The first element is typical of its chunk; measuring each would cost more than the
            # buffer itself.
            self.unit = max(1, element_bytes(items[0]))

    def take(self, max_elements: int, max_bytes: int) -> list[Any]:
        """Remove and return elements up to the next failure, perhaps not all; [] if empty.

        Raises:
            BaseException: if the first item is a failure.
        """
        if not self._chunks:
            return []
        head = self._chunks.popleft()
        count = min(max_elements, max(1, max_bytes // self.unit))
        if count < len(head):
            self._chunks.appendleft(head[count:])
            head = head[:count]
        self._held -= len(head)
        if isinstance(head[0], Failure):
            raise head[0].error
        return head

    def drop(self, n: int) -> int:
        """Drop at most `n` elements and failures; return the number dropped."""
        dropped = 0
        while self._chunks and dropped < n:
            head = self._chunks.popleft()
            if rest := head[n - dropped :]:
                self._chunks.appendleft(rest)
            dropped += len(head) - len(rest)
        self._held -= dropped
        return dropped

    def clear(self) -> None:
        """Remove all items."""
        self._chunks.clear()
        self._held = 0
