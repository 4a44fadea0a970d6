"""Chunks that the user has consumed, until credit is given for them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stoker.service.client.flow.grants import Grants
from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.client.task_cursor import TaskCursor

UNSETTLED = 8
"""Consumed chunks that are accounted for when the next message arrives, at the latest.

Before, only if that makes a report due: where elements come one at a time, accounting for each took
a tenth of the trainer's CPU time.
"""


class Consumed(NamedTuple):
    """A chunk that the user has consumed at time `at`, after `seconds` of work on it.

    `discarded`: the user has not seen it.
    """

    chunk: ReceivedChunk
    seconds: float
    at: float
    discarded: bool = False


class Consumption:
    """Counts the elements of one client from their arrival until credit is given for them.

    Args:
        credit: of the client.
        cursors: its position in each task.

    Attributes:
        outstanding: the number of positions received and not accounted for.
        elements: the number of elements consumed.
        bytes: about how many bytes they take.
    """

    def __init__(self, credit: Grants, cursors: Mapping[int, TaskCursor]) -> None:
        self.outstanding = self.elements = self.bytes = 0
        self._credit = credit
        self._cursors = cursors
        self._chunks: list[Consumed] = []
        self._positions = self._bytes = 0

    def add(self, chunk: ReceivedChunk, seconds: float, now: float) -> bool:
        """Add a chunk that is consumed; return whether its worker may soon be out of credit.

        Args:
            chunk: the chunk.
            seconds: time that the user has worked on it.
            now: seconds.
        """
        self._chunks.append(Consumed(chunk, seconds, now))
        self._positions += chunk.positions
        self._bytes += chunk.nbytes
        return self._credit.urgent(chunk.task_id, self._positions, self._bytes)

    def discard(self, chunks: Sequence[ReceivedChunk], now: float) -> None:
        """Add chunks that are not yielded."""
        self._chunks += [Consumed(chunk, 0.0, now, discarded=True) for chunk in chunks]

    @property
    def due(self) -> bool:
        """True if chunks must be accounted for when a message arrives."""
        if not self._chunks:
            return False
        last = self._chunks[-1].chunk
        return len(self._chunks) >= UNSETTLED or self._credit.due(
            last.task_id, self._positions, self._bytes
        )

    def settle(self) -> list[int]:
        """Account for consumed chunks; return the tasks whose workers need new credit."""
        if not self._chunks:
            return []
        consumed, self._chunks = self._chunks, []
        # Of all tasks together: an estimate that is exact for one worker, and early for several.
        self._positions = self._bytes = 0
        due: list[int] = []
        for chunk, seconds, at, discarded in consumed:
            if not discarded:
                self.elements += len(chunk.elements)
                self.bytes += chunk.nbytes
            self.outstanding -= chunk.positions
            # The task may be one that a dispatcher has forgotten.
            if (cursor := self._cursors.get(chunk.task_id)) is not None:
                cursor.consumed = chunk.number + 1
            due += self._credit.consumed(chunk.task_id, chunk.positions, chunk.nbytes, seconds, at)
        return due

    def filled(self, consumed: int) -> float:
        """Return the fraction of the elements that may be sent ahead which wait here.

        Args:
            consumed: the elements of the current chunk that the user has consumed.
        """
        return min(1.0, (self.outstanding - self._positions - consumed) / self._credit.window)
