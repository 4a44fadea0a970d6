"""Consecutive elements of one task, or the error at one position of it."""

from dataclasses import dataclass
from typing import Any

from stoker.errors import ErrorRecord


@dataclass(frozen=True)
class Chunk:
    """Consecutive elements of a task, or the error at one position of it (then without elements).

    Attributes:
        nbytes: about how many bytes the elements take.
        shared: other clients see the elements too, so a client must not get their memory.
    """

    elements: list[Any]
    nbytes: int
    error: ErrorRecord | None = None
    shared: bool = False

    @property
    def positions(self) -> int:
        """The number of positions of the stream that it covers."""
        return len(self.elements) if self.error is None else 1

    def after(self, count: int) -> "Chunk":
        """Return what follows the first `count` positions; there must be more."""
        if not count:
            return self
        left = len(self.elements) - count
        nbytes = self.nbytes * left // len(self.elements)
        return Chunk(self.elements[count:], nbytes, shared=self.shared)
