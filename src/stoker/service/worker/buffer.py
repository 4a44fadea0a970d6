"""What a task has produced and nobody has taken yet, and who takes which element of it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoker.errors import ErrorRecord


@dataclass(frozen=True)
class Piece:
    """Consecutive elements of a task, or the error at one position of it (then without elements).

    Attributes:
        nbytes: about how many bytes the elements hold.
    """

    elements: list[Any]
    nbytes: int
    error: ErrorRecord | None = None

    @property
    def positions(self) -> int:
        """How many positions of the stream the piece covers."""
        return len(self.elements) if self.error is None else 1

    def after(self, taken: int) -> "Piece":
        """What follows its first `taken` positions, of which it has more."""
        if not taken:
            return self
        left = len(self.elements) - taken
        return Piece(self.elements[taken:], self.nbytes * left // len(self.elements))


class FirstCome:
    """Each element goes to whoever takes first: OFF and DYNAMIC.

    Attributes:
        positions: how many positions are waiting.
        nbytes: about how many bytes they hold.
    """

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._taken = 0  # of the first piece
        self._taken_bytes = 0
        self.positions = 0
        self.nbytes = 0

    def put(self, piece: Piece) -> None:
        """Adds what was produced next."""
        if piece.positions:
            self.positions += piece.positions
            self.nbytes += piece.nbytes
            self._pieces.append(piece)

    def give_back(self, pieces: Sequence[Piece]) -> None:
        """Puts back, in front, what a reader had been sent and its user did not take."""
        waiting = self.drain()
        for piece in (*pieces, *waiting):
            self.put(piece)

    def drain(self) -> list[Piece]:
        """Removes everything."""
        pieces = list(self._pieces)
        if self._taken:
            pieces[0] = pieces[0].after(self._taken)
        self._pieces.clear()
        self._taken = self._taken_bytes = self.positions = self.nbytes = 0
        return pieces

    def take(self, max_elements: int, max_bytes: int) -> Piece:
        """Removes the next elements, at least one; an error comes alone.

        The buffer must not be empty.
        """
        if self._pieces[0].error is not None:
            return self._remove_first()
        elements: list[Any] = []
        nbytes = 0
        while len(elements) < max_elements and self._pieces and self._pieces[0].error is None:
            count = self._fitting(max_elements - len(elements), max_bytes - nbytes)
            if elements and not count:
                break
            part = self._remove(max(1, count))
            elements += part.elements
            nbytes += part.nbytes
        return Piece(elements, nbytes)

    def _fitting(self, max_elements: int, max_bytes: int) -> int:
        """How many elements of what is left of the first piece may be taken."""
        first = self._pieces[0]
        count = len(first.elements)
        by_size = count * max(0, max_bytes) // max(1, first.nbytes)
        return min(max_elements, by_size, count - self._taken)

    def _remove(self, count: int) -> Piece:
        first, start = self._pieces[0], self._taken
        stop = start + count
        if start == 0 and stop == len(first.elements):
            return self._remove_first()
        total = first.nbytes * stop // len(first.elements)
        part = Piece(first.elements[start:stop], total - self._taken_bytes)
        self._taken, self._taken_bytes = stop, total
        self.positions -= count
        self.nbytes -= part.nbytes
        if stop == len(first.elements):
            self._pieces.popleft()
            self._taken = self._taken_bytes = 0
        return part

    def _remove_first(self) -> Piece:
        piece = self._pieces.popleft()
        self.positions -= piece.positions
        self.nbytes -= piece.nbytes
        return piece
