"""Consecutive elements of a task, or the error at a position of the task."""

from dataclasses import dataclass
from typing import Any

from stoker.errors import ErrorRecord


@dataclass(frozen=True)
class Chunk:
    """Consecutive elements of a task, or the error at a position (then without elements).

    Attributes:
        nbytes: about how many bytes the elements take.
        shared: several clients see the elements, so a client must not get their memory.
        position: the first element's position in the task, if the buffer needs it.
        spans: in a task by position, the positions of the epoch that the chunk covers.
    """

    elements: list[Any]
    nbytes: int
    error: ErrorRecord | None = None
    shared: bool = False
    position: int | None = None
    spans: tuple[range, ...] = ()

    @property
    def positions(self) -> int:
        """The number of positions of the stream that the chunk covers."""
        return len(self.elements) if self.error is None else 1

    def after(self, count: int) -> "Chunk":
        """Return what follows the first `count` positions; there must be more."""
        return self.part(count, self.positions)

    def part(self, start: int, stop: int) -> "Chunk":
        """Return the positions from `start` to `stop`, counted from its first; of one span."""
        if stop - start == self.positions:
            return self
        nbytes = self.nbytes * (stop - start) // len(self.elements)
        position = None if self.position is None else self.position + start
        return Chunk(
            self.elements[start:stop],
            nbytes,
            shared=self.shared,
            position=position,
            spans=tuple(span[start:stop] for span in self.spans),
        )

    @property
    def end(self) -> int | None:
        """The position after the chunk, if the chunk's position is known."""
        return None if self.position is None else self.position + self.positions
