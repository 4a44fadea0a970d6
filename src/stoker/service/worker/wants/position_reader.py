"""One client of a task by position: the positions that it wants, and their elements."""

from bisect import insort
from heapq import heappop, heappush

from stoker.errors import InvalidArgumentError
from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.chunk_queue import FRAME_ELEMENTS
from stoker.service.worker.tasks.reader import Reader
from stoker.service.worker.wants.spans import (
    common,
    positions_of,
    span_of,
    starting_at,
    without,
)
from stoker.wire.frames import Credit, Frame, Positions, Want

MAX_RANGES = 1024
"""Most ranges that a client may want at a time: each message is compared with all of them."""


def _first(chunk: Chunk) -> int:
    return chunk.spans[0][0]


class PositionReader(Reader):
    """Positions that one client wants: to be computed, in the pipeline, and computed.

    Nothing is kept after it was sent, and nothing survives a connection: the client asks again on
    its next one, this worker or another.

    Args:
        client_id: the client.
        max_bytes: about the most bytes to send and not know to be consumed.
        length: the number of positions of the epoch.

    Attributes:
        positions: the number of positions computed and not sent.
        nbytes: about how many bytes they take.
    """

    def __init__(self, client_id: int, max_bytes: int, length: int) -> None:
        super().__init__(client_id)
        self._max_bytes = max_bytes
        self._length = length
        self._forget()

    def _forget(self) -> None:
        self.positions = self.nbytes = self.kept_bytes = 0
        self._newest = Want(0, 0, 0)
        self._wanted: list[range] = []
        self._given: list[range] = []
        # Computed chunks of one span each, in the order of their first positions.
        self._ready: list[Chunk] = []
        # The last position and the bytes of the parts that were sent: a heap.
        self._sent: list[tuple[int, int]] = []

    # ── the connection ────────────────────────────────────────────────────────────────────────────
    def can_resume(self, next_frame: int) -> bool:
        return True

    def connect(self, connection: int, attempt: int, next_frame: int) -> None:
        super().connect(connection, attempt, next_frame)
        self._forget()
        # The client knows what it waits for, and the end of the epoch.
        self.ended = self.announced = True

    def disconnect(self) -> None:
        super().disconnect()
        self._forget()

    def credit(self, credit: Credit) -> None:
        raise InvalidArgumentError(
            "this task sends the positions that clients ask for: send `Want`, got `Credit`"
        )

    # ── what the client wants ─────────────────────────────────────────────────────────────────────
    def want(self, want: Want) -> None:
        for ranges in (want.ranges, want.cancelled):
            self._check_number(len(ranges))
        before, self._newest = self._newest, want
        if want.needed > before.needed:
            self._drop_passed()
        for positions in want.cancelled:
            self._cancel(self._checked(positions))
        for positions in want.ranges:
            self._ask(self._checked(positions))
        self._check_number(len(self._wanted) + len(self._given))

    def _check_number(self, ranges: int) -> None:
        if ranges > MAX_RANGES:
            raise InvalidArgumentError(
                f"a client may want at most {MAX_RANGES} ranges at a time, got {ranges}"
            )

    def _checked(self, positions: Positions) -> range:
        first, count, step = positions
        if step < 1 or count < 1 or first < 0 or first + (count - 1) * step >= self._length:
            raise InvalidArgumentError(
                f"positions must be in [0, {self._length}), at least one, with a step of at least "
                f"1, got first {first}, count {count}, step {step}"
            )
        return span_of(positions)

    def _drop_passed(self) -> None:
        """Drop the positions before the needed one."""
        needed = self._newest.needed
        for spans in (self._wanted, self._given):
            spans[:] = [part for span in spans if (part := starting_at(span, needed))]
        while self._ready and _first(self._ready[0]) < needed:
            chunk = self._remove_first()
            if rest := starting_at(chunk.spans[0], needed):
                self._add(_part(chunk, rest))
        while self._sent and self._sent[0][0] < needed:
            self.kept_bytes -= heappop(self._sent)[1]

    def _cancel(self, cancelled: range) -> None:
        for spans in (self._wanted, self._given):
            spans[:] = [part for span in spans for part in without(span, cancelled)]
        ready, self._ready = self._ready, []
        self.positions = self.nbytes = 0
        for chunk in ready:
            for part in without(chunk.spans[0], cancelled):
                self._add(_part(chunk, part))

    def _ask(self, asked: range) -> None:
        ready = (chunk.spans[0] for chunk in self._ready)
        for spans in (self._wanted, self._given, ready):
            if any(common(span, asked) for span in spans):
                raise InvalidArgumentError(
                    f"positions {asked} are wanted twice: cancel them before they are asked again"
                )
        if rest := starting_at(asked, self._newest.needed):
            self._wanted.append(rest)

    # ── computing ─────────────────────────────────────────────────────────────────────────────────
    @property
    def lacks_needed(self) -> bool:
        """True if the needed position is wanted and not computed."""
        return self.waits_for_needed or self._is_first_of(self._given)

    @property
    def waits_for_needed(self) -> bool:
        """True if the needed position is wanted, and is not in the pipeline."""
        return self._is_first_of(self._wanted)

    def _is_first_of(self, spans: list[range]) -> bool:
        # Earlier positions are dropped, so that the needed one begins a span.
        return any(span[0] == self._newest.needed for span in spans)

    @property
    def waits(self) -> bool:
        """True if a position is wanted and is not in the pipeline."""
        return bool(self._wanted)

    def take_turn(self, most: int) -> range:
        """Return at most this number of positions to compute next; some must wait."""
        firsts = [span[0] for span in self._wanted]
        needed = self._newest.needed
        index = firsts.index(needed) if needed in firsts else 0
        span = self._wanted.pop(index)
        if rest := span[most:]:
            self._wanted.insert(0, rest)
        self._given.append(span[:most])
        return span[:most]

    def wants(self, span: range) -> bool:
        """Return whether some of the positions are wanted and not computed."""
        return any(common(each, span) for each in (*self._given, *self._wanted))

    def put(self, chunk: Chunk) -> None:
        """Add the wanted ones of computed elements of one span."""
        [span] = chunk.spans
        for spans in (self._given, self._wanted):
            for each in list(spans):
                if part := common(each, span):
                    index = spans.index(each)
                    spans[index : index + 1] = without(each, part)
                    self._add(_part(chunk, part))

    def _add(self, chunk: Chunk) -> None:
        insort(self._ready, chunk, key=_first)
        self.positions += chunk.positions
        self.nbytes += chunk.nbytes

    def _remove_first(self) -> Chunk:
        chunk = self._ready.pop(0)
        self.positions -= chunk.positions
        self.nbytes -= chunk.nbytes
        return chunk

    # ── sending ───────────────────────────────────────────────────────────────────────────────────
    @property
    def room(self) -> tuple[int, int]:
        nbytes = min(self._newest.bytes, self._max_bytes) - self.kept_bytes
        if not self._ready:
            return 0, nbytes
        first = _first(self._ready[0])
        # A range that moved from another worker would wait for ever behind later ones.
        if first == self._newest.needed:
            return FRAME_ELEMENTS, max(1, nbytes)
        return FRAME_ELEMENTS if first < self._newest.limit else 0, nbytes

    @property
    def frame_room(self) -> tuple[int, int]:
        return self.room

    def take(self, max_elements: int, max_bytes: int) -> Chunk:
        """Remove and return the next elements, of any number of spans; an error comes alone."""
        if self._ready[0].error is not None:
            return self._sending(self._remove_first())
        parts: list[Chunk] = []
        positions = nbytes = 0
        while self._ready and self._ready[0].error is None:
            count = self._fitting(self._ready[0], max_elements - positions, max_bytes - nbytes)
            if parts and not count:
                break
            part = self._cut(max(1, count))
            parts.append(part)
            positions += part.positions
            nbytes += part.nbytes
        if len(parts) == 1:
            return parts[0]
        return Chunk(
            [element for part in parts for element in part.elements],
            nbytes,
            shared=any(part.shared for part in parts),
            spans=tuple(part.spans[0] for part in parts),
        )

    def _fitting(self, chunk: Chunk, max_elements: int, max_bytes: int) -> int:
        """Return how many of the first elements of a chunk may be sent."""
        by_size = chunk.positions * max(0, max_bytes) // max(1, chunk.nbytes)
        span, limit = chunk.spans[0], self._newest.limit
        before = len(span) - len(starting_at(span, limit))
        return min(chunk.positions, max_elements, by_size, before)

    def _cut(self, count: int) -> Chunk:
        """Remove and return the first elements of the first chunk."""
        chunk = self._remove_first()
        if count < chunk.positions:
            self._add(chunk.after(count))
            chunk = chunk.part(0, count)
        return self._sending(chunk)

    def _sending(self, chunk: Chunk) -> Chunk:
        heappush(self._sent, (chunk.spans[0][-1], chunk.nbytes))
        self.kept_bytes += chunk.nbytes
        return chunk

    def send(self, chunk: Chunk) -> Frame:
        number = self.next_number
        self.next_number += 1
        positions = positions_of(chunk.spans)
        return Frame(number, chunk.elements, chunk.error, chunk.nbytes, chunk.shared, positions)


def _part(chunk: Chunk, span: range) -> Chunk:
    """Return the elements of a chunk of one span at positions that follow each other in it."""
    first = chunk.spans[0].index(span[0])
    return chunk.part(first, first + len(span))
