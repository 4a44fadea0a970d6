"""What a task has produced and nobody has taken yet, and who takes which element of it."""

from collections import deque
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


class FirstCome:
    """Each element goes to whoever takes first: OFF and DYNAMIC.

    Attributes:
        positions: how many positions are waiting.
        nbytes: about how many bytes they hold.
    """

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self.positions = 0
        self.nbytes = 0

    def put(self, piece: Piece) -> None:
        """Adds what was produced next."""
        self._count(piece, 1)
        self._pieces.append(piece)

    def give_back(self, pieces: list[Piece]) -> None:
        """Puts back, in front, what a reader had been sent and its user did not take."""
        for piece in reversed(pieces):
            self._count(piece, 1)
            self._pieces.appendleft(piece)

    def take(self, max_elements: int, max_bytes: int) -> Piece:
        """Removes the next elements, at least one; an error comes alone. The buffer must not be empty."""
        first = self._remove(max_elements, max_bytes)
        if first.error is not None:
            return first
        elements, nbytes = first.elements, first.nbytes
        while self._pieces and self._pieces[0].error is None:
            spare = max_bytes - nbytes
            if len(elements) >= max_elements or self._pieces[0].nbytes > spare:
                break
            more = self._remove(max_elements - len(elements), spare)
            elements = elements + more.elements
            nbytes += more.nbytes
        return Piece(elements, nbytes)

    def _remove(self, max_elements: int, max_bytes: int) -> Piece:
        piece = self._pieces.popleft()
        count = len(piece.elements)
        if piece.error is None and count > 1:
            fitting = max(1, min(max_elements, count * max_bytes // max(1, piece.nbytes)))
            if fitting < count:
                nbytes = piece.nbytes * fitting // count
                rest = Piece(piece.elements[fitting:], piece.nbytes - nbytes)
                self._pieces.appendleft(rest)
                piece = Piece(piece.elements[:fitting], nbytes)
        self._count(piece, -1)
        return piece

    def _count(self, piece: Piece, sign: int) -> None:
        self.positions += sign * piece.positions
        self.nbytes += sign * piece.nbytes
