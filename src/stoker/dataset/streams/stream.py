"""The three verbs of an open pipeline: `next`, `next_chunk`, `advance`."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

from stoker.dataset.streams.work import Work

READ_AHEAD_ELEMENTS = 128
READ_AHEAD_BYTES = 64 << 10
"""The most read in a lazy call where a single element is asked for.

Reading the elements of a range singly takes three times as long.
"""

NO_LIMIT = 1 << 62
"""The limit of a read that another limit bounds, such as a size that the user gave."""

# About the most bytes of elements that `advance` discards in a step.
DISCARDED_BYTES = 1 << 20


class Stream(ABC):
    """A pipeline being read: a sequence of positions, each an element or an error.

    An error occupies its element's position: the call that reaches this position raises, and the
    next call continues afterwards. `StopIteration` means the end and is never raised for a user's
    error; after the end every `next` raises `StopIteration` and every `next_chunk` returns ``[]``.
    A stream is read by one thread at a time; `close` may come from another thread.

    Attributes:
        ready: received elements that can be consumed without a call; None for most streams.
            An element consumed here is consumed from the stream; only reading replaces the
            iterator.
        work: the time in its function or on its own threads; None if not measured.
        gauge: the `Gauge` that measures its calls; None if not measured.
    """

    ready: Iterator[Any] | None = None
    work: Work | None = None
    gauge: object = None

    def next(self) -> Any:
        """Return the next element; block until there is an element.

        Raises:
            StopIteration: at the end.
            Exception: the error that occupies this position.
        """
        chunk = self.next_chunk(1, 1)
        if not chunk:
            raise StopIteration
        return chunk[0]

    @abstractmethod
    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        """Return the elements that are ready: at least 1, ``[]`` only at the end.

        Wait for the first element only: with an element in the chunk, neither block nor compute
        for longer than about a millisecond. User functions are called for at most `max_elements`
        elements. If a position after the first fails, the chunk ends before this position and the
        next call raises.

        Args:
            max_elements: the most elements to return, at least 1.
            max_bytes: about the most bytes to return; a single element always fits.
            lazy: call user functions for the first element only, and consume an element of a
                service at most; what follows in the chunk took neither.
        """

    def advance(self, n: int) -> int:
        """Skip `n` positions as cheaply as the node allows.

        Returns:
            The number of positions skipped, less than `n` only at the end. The position of an error
            counts too, and the error is not raised.
        """
        left = n
        while left > 0:
            try:
                skipped = len(self.next_chunk(left, DISCARDED_BYTES))
            except Exception:  # noqa: BLE001 - the position is skipped, whatever its content
                skipped = 1
            if not skipped:
                break
            left -= skipped
        return n - left

    def filled(self) -> float | None:
        """Return the fraction of the buffer that is ready to be read; None without a buffer."""
        return None

    def copy(self) -> Self:
        """Return a stream at the same position, which is read independently.

        Only for streams of row numbers.
        """
        return copy.copy(self)

    def copy_bytes(self) -> int:
        """Return about the bytes of a copy that are not shared with this stream."""
        return 0

    def close(self) -> None:  # noqa: B027 - most streams hold nothing
        """Close the inputs and leave no thread running; idempotent."""


class OneInputStream(Stream):
    """A stream that reads and closes a single input.

    Args:
        stream: the input.
    """

    def __init__(self, stream: Stream) -> None:
        self._input = stream

    def copy(self) -> Self:
        copied = super().copy()
        copied._input = self._input.copy()
        return copied

    def copy_bytes(self) -> int:
        return self._input.copy_bytes()

    def close(self) -> None:
        self._input.close()


class PushbackStream(OneInputStream):
    """A stream to which elements can be returned that were read from it.

    Args:
        stream: the input.
    """

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._returned: list[Any] = []

    def push_back(self, elements: list[Any]) -> None:
        """Yield these elements before all others."""
        self._returned = elements + self._returned

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if not self._returned:
            return self._input.next_chunk(max_elements, max_bytes, lazy)
        chunk = self._returned[:max_elements]
        del self._returned[:max_elements]
        return chunk

    def advance(self, n: int) -> int:
        returned = min(n, len(self._returned))
        del self._returned[:returned]
        return returned + self._input.advance(n - returned)
