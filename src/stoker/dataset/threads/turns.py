"""Several streams read in turn, as interleave reads its datasets."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

from stoker.dataset.streams.stream import READ_AHEAD_BYTES, READ_AHEAD_ELEMENTS, Stream
from stoker.elements.sizes import element_bytes


class Streams(Protocol):
    """The streams that are read in turn."""

    def next(self) -> Stream | None:
        """Return the next stream, None at the end; for an error, a stream of that error."""

    def ready(self, stream: Any, max_elements: int, max_bytes: int) -> list[Any]:
        """Return elements of `stream` that are ready to be taken; perhaps none."""

    def close(self) -> None:
        """Close what the streams are made of, and those that were not returned."""


@dataclass(slots=True, eq=False)
class _Turn:
    """A place of the cycle and the stream that is read there.

    Attributes:
        stream: the stream.
        buffered: elements read and not yielded, the next element last.
        unit: about the bytes of a buffered element.
        skipped: positions after the buffered elements that the stream has skipped already.
        ended: the stream has no more positions after these.
    """

    stream: Stream
    buffered: list[Any] = field(default_factory=list)
    unit: int = 1
    skipped: int = 0
    ended: bool = False

    def fill(self, elements: list[Any]) -> None:
        """Buffer elements read from the stream; the buffer is empty before."""
        if elements:
            self.unit = element_bytes(elements[0])
            elements.reverse()
            self.buffered = elements

    def take(self, count: int) -> list[Any]:
        """Remove and return at most `count` buffered elements."""
        taken = self.buffered[-count:]
        del self.buffered[-count:]
        taken.reverse()
        return taken

    def known(self) -> int:
        """Return the number of positions that certainly exist."""
        return len(self.buffered) + self.skipped

    def look_ahead(self, count: int) -> None:
        """Make `count` positions known, if the stream has as many."""
        missing = count - self.known()
        if missing > 0 and not self.ended:
            found = self.stream.advance(missing)
            self.skipped += found
            self.ended = found < missing

    def drop(self, count: int) -> int:
        """Drop at most `count` of the known positions; return how many."""
        dropped = min(count, self.known())
        buffered = min(dropped, len(self.buffered))
        if buffered:
            del self.buffered[-buffered:]
        self.skipped -= dropped - buffered
        return dropped


class TurnsStream(Stream):
    """Several streams in turn, in the order of tf.data's interleave.

    A slot whose stream ends gives up the rest of its turn, and takes the next stream when its turn
    comes again. Errors count in a turn as elements do.

    Args:
        streams: what is read; closed with this.
        cycle_length: how many are read in turn.
        block_length: the positions of a turn.
    """

    def __init__(self, streams: Streams, cycle_length: int, block_length: int) -> None:
        self._streams = streams
        self._slots: list[_Turn | None] = [None] * cycle_length
        self._open = 0
        self._all_opened = False
        self._at = 0
        self._block = block_length
        self._left = block_length
        """Positions left of this turn."""

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        single = max_elements == 1
        while (slot := self._current()) is not None:
            if single and slot.buffered:
                self._count(1)
                return [slot.buffered.pop()]
            turns = self._open if self._all_opened else len(self._slots)
            share = -(-max_elements // turns)
            if not slot.buffered:
                count = min(max_elements, max(share, self._left))
                nbytes = max(1, max_bytes // turns)
                if single or lazy:
                    count, nbytes, lazy = READ_AHEAD_ELEMENTS, READ_AHEAD_BYTES, True
                try:
                    slot.fill(slot.stream.next_chunk(count, nbytes, lazy))
                except Exception:
                    self._count(1)
                    raise
            if not slot.buffered:
                self._end_stream(slot)
            elif not single:
                return self._collect(max_elements, max_bytes, share)
        return []

    def advance(self, n: int) -> int:
        left = n
        while left and (slot := self._current()) is not None:
            left -= self._drop_rounds(left)
            turn = min(self._left, left)
            # This many rounds are certainly skipped: a round has at most a block of each slot.
            rounds = left // (len(self._slots) * self._block) if self._left == self._block else 0
            slot.look_ahead(max(turn, rounds * self._block))
            dropped = slot.drop(turn)
            left -= dropped
            if dropped < turn:
                self._end_stream(slot)
            elif dropped:
                self._count(dropped)
        return n - left

    def close(self) -> None:
        self._all_opened = True
        self._open = 0
        slots, self._slots = self._slots, [None] * len(self._slots)
        with ExitStack() as closing:  # a stream that fails keeps no second stream open
            closing.callback(self._streams.close)
            for slot in slots:
                if slot is not None:
                    closing.callback(slot.stream.close)

    def _current(self) -> _Turn | None:
        """Return the slot whose turn has come, with a stream; None at the end."""
        while (slot := self._slots[self._at]) is None:
            if not self._all_opened and (stream := self._streams.next()) is not None:
                slot = self._slots[self._at] = _Turn(stream)
                self._open += 1
                return slot
            self._all_opened = True
            if not self._open:
                return None
            self._next_turn()
        return slot

    def _next_turn(self) -> None:
        self._at = (self._at + 1) % len(self._slots)
        self._left = self._block

    def _count(self, positions: int) -> None:
        self._left -= positions
        if not self._left:
            self._next_turn()

    def _end_stream(self, slot: _Turn) -> None:
        if self._slots[self._at] is slot:  # else another thread has closed the slot meanwhile
            self._slots[self._at] = None
            self._open -= 1
        self._next_turn()
        slot.stream.close()

    def _collect(self, max_elements: int, max_bytes: int, share: int) -> list[Any]:
        """Return elements without reading a stream that may have to be waited for."""
        chunk: list[Any] = []
        while len(chunk) < max_elements and (max_bytes > 0 or not chunk):
            # From the first slot on, where all slots have the same number of turns left.
            if self._block == 1 and not self._at:
                before = len(chunk)
                max_bytes -= self._collect_rounds(chunk, max_elements, max_bytes)
                if len(chunk) > before:
                    continue
            slot = self._slots[self._at]
            if slot is None:
                if not self._all_opened or not self._open:  # none is open if another thread closed
                    break
                self._next_turn()
                continue
            if not slot.buffered:
                slot.fill(self._streams.ready(slot.stream, max(share, self._left), max_bytes))
                if not slot.buffered:
                    break
            room = max(1, min(max_elements - len(chunk), max_bytes // slot.unit))
            taken = slot.take(min(self._left, room))
            chunk += taken
            max_bytes -= len(taken) * slot.unit
            self._count(len(taken))
        return chunk

    def _collect_rounds(self, chunk: list[Any], max_elements: int, max_bytes: int) -> int:
        """Add whole rounds of an element each; a loop over turns takes three times as long.

        Returns:
            About the bytes added.
        """
        slots = self._turns()
        if not slots:
            return 0
        round_bytes = sum(slot.unit for slot in slots)
        room = min((max_elements - len(chunk)) // len(slots), max_bytes // round_bytes)
        rounds = min(room, *(len(slot.buffered) for slot in slots))
        if rounds < 2:
            return 0
        chunk += chain.from_iterable(zip(*(slot.take(rounds) for slot in slots), strict=True))
        return rounds * round_bytes

    def _turns(self) -> list[_Turn]:
        """Return the slots in the order of their turns; none if a stream opens in between."""
        order = self._slots[self._at :] + self._slots[: self._at]
        slots = [slot for slot in order if slot is not None]
        return slots if self._all_opened or len(slots) == len(order) else []

    def _drop_rounds(self, left: int) -> int:
        """Drop whole rounds of known positions; return how many positions."""
        if self._at or self._left != self._block:
            return 0
        slots = self._turns()
        if not slots:
            return 0
        rounds = left // (len(slots) * self._block)
        rounds = min(rounds, min(slot.known() for slot in slots) // self._block)
        return sum(slot.drop(rounds * self._block) for slot in slots) if rounds else 0
