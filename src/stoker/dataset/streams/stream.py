"""The three verbs of an open pipeline: `next`, `next_chunk`, `advance`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

# About what `advance` holds at once of elements that it drops.
_DROPPED_BYTES = 1 << 20


class Stream(ABC):
    """A pipeline being read: a sequence of positions, each an element or an error.

    An error occupies its element's position: the call that reaches it raises, and the call after
    that continues behind it. `StopIteration` means the end and is never raised for a user's error;
    after the end every `next` raises it again and every `next_chunk` returns ``[]``.
    A stream is read by one thread at a time; `close` may come from another.

    Attributes:
        ready: elements that can be had without a call. What is taken from it is taken from the
            stream; while it is not empty, only reading replaces it.
    """

    ready: Iterator[Any] = iter(())

    @abstractmethod
    def next(self) -> Any:
        """The next element; blocks until there is one.

        Raises:
            StopIteration: at the end.
            Exception: the error that occupies this position.
        """

    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        """What is ready: at least one element, ``[]`` only at the end.

        Waits for the first element only: once it holds one it neither blocks nor computes longer
        than about a millisecond. If a position behind the first fails, the chunk ends before it and
        the next call raises.

        Args:
            max_elements: the most elements to return, at least 1.
            max_bytes: about the most bytes to return; one element always fits.
        """
        try:
            return [self.next()]
        except StopIteration:
            return []

    def advance(self, n: int) -> int:
        """Moves past `n` positions as cheaply as the node allows.

        Returns:
            How many were passed, less than `n` only at the end. An error's position counts as one
            and is not raised.
        """
        for passed in range(n):
            try:
                self.next()
            except StopIteration:
                return passed
            except Exception:  # noqa: BLE001 - the position is passed, whatever it holds
                continue
        return n

    def close(self) -> None:  # noqa: B027 - most streams hold nothing
        """Closes the inputs and leaves no thread behind; idempotent."""


class ChunkedStream(Stream):
    """A stream that is read chunk by chunk: `next` is a chunk of one, `advance` drops chunks."""

    def next(self) -> Any:
        chunk = self.next_chunk(1, 1)
        if not chunk:
            raise StopIteration
        return chunk[0]

    @abstractmethod
    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]: ...

    def advance(self, n: int) -> int:
        left = n
        while left > 0:
            try:
                passed = len(self.next_chunk(left, _DROPPED_BYTES))
            except Exception:  # noqa: BLE001 - the position is passed, whatever it holds
                passed = 1
            if not passed:
                break
            left -= passed
        return n - left
