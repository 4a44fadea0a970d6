"""Several streams read in turn, as interleave reads its datasets."""

from contextlib import ExitStack
from itertools import chain
from typing import Any, Protocol

from stoker.dataset.streams.stream import READ_AHEAD_BYTES, Stream
from stoker.elements.sizes import element_bytes

# The most elements that a lazy read takes of one stream.
_READY_ELEMENTS = 16
_CHUNK_BYTES = 1 << 20


class Streams(Protocol):
    """What is read in turn: streams, one after the other."""

    def next(self) -> Stream | None:
        """The next one, None at the end; an error in its place is a stream of that error."""
        ...

    def ready(self, stream: Any, max_elements: int, max_bytes: int) -> list[Any]:
        """Elements of one of them that cost nothing to take; perhaps none."""
        ...

    def close(self) -> None: ...


class _Slot:
    """A place of the cycle and the stream that is read there.

    Attributes:
        stream: the stream.
        held: elements read of it and not delivered yet, the next one last.
        unit: about the bytes of one of them.
        passed: positions behind those held that `advance` has passed already.
        ended: the stream has no more behind these.
    """

    __slots__ = ("ended", "held", "passed", "stream", "unit")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.held: list[Any] = []
        self.unit = 1
        self.passed = 0
        self.ended = False

    def hold(self, elements: list[Any]) -> None:
        if elements:
            self.unit = element_bytes(elements[0])
            elements.reverse()
            self.held = elements

    def take(self, count: int) -> list[Any]:
        """At most so many of those held."""
        taken = self.held[-count:]
        del self.held[-count:]
        taken.reverse()
        return taken

    def known(self) -> int:
        """How many positions are there for certain."""
        return len(self.held) + self.passed

    def reach(self, count: int) -> None:
        """Make so many positions known, if there are as many."""
        missing = count - self.known()
        if missing > 0 and not self.ended:
            got = self.stream.advance(missing)
            self.passed += got
            self.ended = got < missing

    def drop(self, count: int) -> int:
        """Drop at most so many of the known positions; returns how many."""
        dropped = min(count, self.known())
        held = min(dropped, len(self.held))
        if held:
            del self.held[-held:]
        self.passed -= dropped - held
        return dropped


class TurnsStream(Stream):
    """Several streams in turn, in the order of tf.data's interleave.

    A slot whose stream ends gives up the rest of its turn, and takes the next stream when its turn
    comes again. The turns count errors as they count elements.

    Args:
        streams: what is read; closed with this.
        cycle_length: how many are read in turn.
        block_length: the positions of a turn.
    """

    def __init__(self, streams: Streams, cycle_length: int, block_length: int) -> None:
        self._streams = streams
        self._slots: list[_Slot | None] = [None] * cycle_length
        self._open = 0
        self._all_opened = False
        self._at = 0
        self._block = block_length
        self._ready_most = max(block_length, _READY_ELEMENTS)
        self._left = block_length
        """Positions left of this turn."""

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy:
            return self._next_lazily()
        while (slot := self._current()) is not None:
            turns = self._open if self._all_opened else len(self._slots)
            share = -(-max_elements // turns)
            if not slot.held:
                wanted = min(max_elements, max(share, self._left))
                try:
                    slot.hold(slot.stream.next_chunk(wanted, max(1, max_bytes // turns)))
                except Exception:
                    self._count(1)
                    raise
            if slot.held:
                return self._collect(max_elements, max_bytes, share)
            self._end_stream(slot)
        return []

    def _next_lazily(self) -> list[Any]:
        while (slot := self._current()) is not None:
            if not slot.held:
                try:
                    slot.hold(slot.stream.next_chunk(self._ready_most, READ_AHEAD_BYTES, True))
                except Exception:
                    self._count(1)
                    raise
            if slot.held:
                taken = slot.take(self._left)
                self._count(len(taken))
                return taken
            self._end_stream(slot)
        return []

    def advance(self, n: int) -> int:
        left = n
        while left and (slot := self._current()) is not None:
            left -= self._drop_rounds(left)
            turn = min(self._left, left)
            # So many rounds will be passed for certain: every round has at most a block of each.
            rounds = left // (len(self._slots) * self._block) if self._left == self._block else 0
            slot.reach(max(turn, rounds * self._block))
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
        with ExitStack() as closing:  # one that fails keeps no other open
            closing.callback(self._streams.close)
            for slot in slots:
                if slot is not None:
                    closing.callback(slot.stream.close)

    def _current(self) -> _Slot | None:
        """The slot whose turn it is, with a stream; None at the end."""
        while True:
            slot = self._slots[self._at]
            if slot is not None:
                return slot
            if self._all_opened:
                if not self._open:
                    return None
                self._next_turn()
                continue
            stream = self._streams.next()
            if stream is None:
                self._all_opened = True
                continue
            slot = self._slots[self._at] = _Slot(stream)
            self._open += 1
            return slot

    def _next_turn(self) -> None:
        self._at = (self._at + 1) % len(self._slots)
        self._left = self._block

    def _count(self, positions: int) -> None:
        self._left -= positions
        if not self._left:
            self._next_turn()

    def _end_stream(self, slot: _Slot) -> None:
        if self._slots[self._at] is slot:  # else closed by another thread meanwhile
            self._slots[self._at] = None
            self._open -= 1
        self._next_turn()
        slot.stream.close()

    def _collect(self, max_elements: int, max_bytes: int, share: int) -> list[Any]:
        """What is there without reading a stream that might have to be waited for."""
        chunk: list[Any] = []
        while len(chunk) < max_elements and (max_bytes > 0 or not chunk):
            if self._block == 1 and not self._at:
                before = len(chunk)
                max_bytes -= self._collect_rounds(chunk, max_elements, max_bytes)
                if len(chunk) > before:
                    continue
            slot = self._slots[self._at]
            if slot is None:
                if not self._all_opened:
                    break
                self._next_turn()
                continue
            if not slot.held:
                slot.hold(self._streams.ready(slot.stream, max(share, self._left), max_bytes))
                if not slot.held:
                    break
            room = max(1, min(max_elements - len(chunk), max_bytes // slot.unit))
            taken = slot.take(min(self._left, room))
            chunk += taken
            max_bytes -= len(taken) * slot.unit
            self._count(len(taken))
        return chunk

    def _collect_rounds(self, chunk: list[Any], max_elements: int, max_bytes: int) -> int:
        """Whole rounds of one element each, which a loop over turns makes three times slower.

        Returns:
            About the bytes taken.
        """
        slots = self._turns()
        if not slots:
            return 0
        round_bytes = sum(slot.unit for slot in slots)
        room = min((max_elements - len(chunk)) // len(slots), max_bytes // round_bytes)
        rounds = min(room, *(len(slot.held) for slot in slots))
        if rounds < 2:
            return 0
        chunk += chain.from_iterable(zip(*(slot.take(rounds) for slot in slots), strict=True))
        return rounds * round_bytes

    def _turns(self) -> list[_Slot]:
        """The slots in the order of their turns; none if a stream is to be opened in between."""
        order = self._slots[self._at :] + self._slots[: self._at]
        slots = [slot for slot in order if slot is not None]
        return slots if self._all_opened or len(slots) == len(order) else []

    def _drop_rounds(self, left: int) -> int:
        """Drop whole rounds of known positions; returns how many positions."""
        if self._at or self._left != self._block:
            return 0
        slots = self._turns()
        if not slots:
            return 0
        rounds = left // (len(slots) * self._block)
        rounds = min(rounds, min(slot.known() for slot in slots) // self._block)
        return sum(slot.drop(rounds * self._block) for slot in slots) if rounds else 0
