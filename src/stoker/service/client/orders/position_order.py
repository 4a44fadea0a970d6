"""The order of a deterministic epoch: that of the positions."""

from collections.abc import Sequence
from dataclasses import replace

from stoker.dataset.tree.splits import ENDLESS
from stoker.service.client.orders.order import Order, ReceivedChunk
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.service.client.wants.spans import Span, Spans
from stoker.wire.frames import Positions

ELEMENT_BYTES = 256
"""Memory of an element besides its values: the objects and lists of a dict of three arrays."""


class PositionOrder(Order):
    """Elements are yielded in the order of their positions, each once.

    A frame that continues the epoch is passed on as it is; of others, the parts that have not
    arrived before are kept. Elements are numbered from the first of this consumer.

    Args:
        share: the positions of this consumer.

    Attributes:
        share: the same.
        length: the number of elements; ``None`` before it is known.
        next: the first element that is not yielded.
        needed: the first that the user has not consumed.
        head: the first that has not arrived.
        waits: the user waits for `next`.
        held_bytes: about how much memory the elements take that have arrived and are not consumed.
        consumed_bytes: task → bytes consumed of its elements.
    """

    def __init__(self, share: EpochShare) -> None:
        self.share = share
        self.length: int | None = None
        self.next = self.needed = self.head = 0
        self.waits = False
        self.held_bytes = 0
        self.consumed_bytes: dict[int, int] = {}
        self._arrived = Spans()
        self._pieces: dict[int, ReceivedChunk] = {}
        self._current: ReceivedChunk | None = None

    @property
    def arrived(self) -> int:
        """The number of elements that have arrived."""
        return self._arrived.count

    @property
    def empty(self) -> bool:
        return not self._pieces

    def put(self, chunk: ReceivedChunk) -> int:
        before, at = self._arrived.count, 0
        for positions in _joined(chunk.ranges):
            start, stop = self._own(positions)
            for first, end in self._arrived.add(start, stop) if start < stop else ():
                piece = self._pieces[first] = _part(chunk, at + first - start, at + end - start)
                self.held_bytes += piece.nbytes + ELEMENT_BYTES * piece.positions
            at += positions[1]
        self.head = self._arrived.gap(self.next, ENDLESS)[0]
        self.waits = self.waits and self.head == self.next
        return self._arrived.count - before

    def spans(self, chunk: ReceivedChunk) -> list[Span]:
        """Return the elements of a chunk, as ranges."""
        return [self._own(positions) for positions in _joined(chunk.ranges)]

    def _own(self, positions: Positions) -> Span:
        """Return the elements at these positions; none if they are not of this consumer."""
        start, stop = self.share.own(positions) or (0, 0)
        return start, min(stop, self.length or 0)

    def take(self) -> ReceivedChunk | None:
        if self._current is not None:
            self._consume(self._current)
        self.needed = self.next
        chunk = self._current = self._pieces.pop(self.next, None)
        self.waits = chunk is None
        if chunk is not None:
            self.next += chunk.positions
        return chunk

    def _consume(self, chunk: ReceivedChunk) -> None:
        self.held_bytes -= chunk.nbytes + ELEMENT_BYTES * chunk.positions
        read = self.consumed_bytes.get(chunk.task_id, 0)
        self.consumed_bytes[chunk.task_id] = read + chunk.nbytes

    def skip(self, elements: int) -> tuple[int, int]:
        """Pass elements without yielding them; the last one that was yielded is consumed.

        Returns:
            The number of elements passed, and of those of them that have arrived.
        """
        stop = self.next + elements
        if self.length is not None:
            stop = min(stop, self.length)
        passed, dropped = stop - self.next, 0
        for first in sorted(x for x in self._pieces if x < stop):
            piece = self._pieces.pop(first)
            rest = max(0, first + piece.positions - stop)
            dropped += piece.positions - rest
            gone = _part(piece, 0, piece.positions - rest)
            self._consume(gone)
            if rest:
                self._pieces[stop] = _part(piece, piece.positions - rest, piece.positions)
        if passed > 0:
            self._arrived.add(0, stop)
            self.next = self.needed = stop
            self.head = self._arrived.gap(stop, ENDLESS)[0]
        return max(0, passed), dropped

    def clear(self) -> None:
        self._pieces.clear()
        self._current = None

    def is_over(self, computed: bool, ended: bool) -> bool:
        return self.length is not None and self.next >= self.length


def _joined(ranges: Sequence[Positions]) -> Sequence[Positions]:
    """Return the same positions; those of turns that follow each other as one range."""
    if len(ranges) < 2:
        return ranges
    joined: list[Positions] = []
    for first, count, step in ranges:
        before, number, distance = joined[-1] if joined else (0, 0, 0)
        if joined and distance == step and first == before + number * step:
            joined[-1] = before, number + count, step
        else:
            joined.append((first, count, step))
    return joined


def _part(chunk: ReceivedChunk, start: int, stop: int) -> ReceivedChunk:
    """Return the positions from `start` to `stop` of a chunk, counted from its first."""
    if stop - start == chunk.positions:
        return chunk
    nbytes = chunk.nbytes * stop // len(chunk.elements) - chunk.nbytes * start // len(
        chunk.elements
    )
    return replace(chunk, elements=chunk.elements[start:stop], nbytes=nbytes)
