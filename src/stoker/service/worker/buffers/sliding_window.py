"""The cross-trainer cache of one task: a sliding window over its elements.

Each trainer reads the elements in order, at its own speed. The trainer that is ahead of all others
takes what the pipeline has computed; what it has taken stays in the window for the others, up to a
limit in bytes. A trainer that is too slow skips to the start of the window. This is the rule of
tf.data service.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.elements.sizes import element_bytes
from stoker.errors import ErrorRecord, InvalidArgumentError, to_record
from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.buffer import Buffer, has_room
from stoker.service.worker.buffers.chunk_queue import ChunkQueue

PIECE_BYTES = 256
"""Memory of a chunk in the window besides its elements: there may be one for each small element."""

PIECES = 16
"""Least number of parts of a full window, unless elements are larger: one part at a time leaves."""


@dataclass
class _Trainer:
    """The place of one trainer in the window.

    Attributes:
        next: the first position that it has not been sent.
        returned: positions before `next` that its clients gave back, as disjoint sorted ranges.
        clients: those that read now.
        skipped: positions that left the window before it was sent them, not yet counted.
        lost: positions that were sent to lost clients, not yet counted.
    """

    next: int
    returned: list[tuple[int, int]] = field(default_factory=list)
    clients: set[int] = field(default_factory=set)
    skipped: int = 0
    lost: int = 0

    def skip_to(self, start: int) -> None:
        """Give up the positions before `start`."""
        self.skipped += self._cut(start) + max(0, start - self.next)
        self.next = max(self.next, start)

    def _cut(self, start: int) -> int:
        """Remove the returned positions before `start`; return their number."""
        removed = 0
        while self.returned and self.returned[0][0] < start:
            first, end = self.returned.pop(0)
            removed += min(end, start) - first
            if end > start:
                self.returned.insert(0, (start, end))
        return removed

    @property
    def first(self) -> tuple[int, int | None]:
        """The position to send next, and the end of its range, if it was given back."""
        return self.returned[0] if self.returned else (self.next, None)

    def advance(self, end: int) -> None:
        """Move past the positions before `end`, which were sent."""
        if self.returned:
            self._cut(end)
        else:
            self.next = end

    def give_back(self, first: int, end: int) -> None:
        """Let the next client of this trainer get positions that were sent."""
        # Neighbours stay apart: each range was one frame, and will be one again.
        insort(self.returned, (first, end))


class _Window:
    """Consecutive chunks that a trainer was sent; the oldest leave first.

    Attributes:
        start: the position of the first element.
        end: the position after the last element.
        nbytes: about how many bytes the chunks take.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._chunks: list[Chunk | None] = []
        self._positions: list[int] = []  # of the chunks
        self._left = 0  # chunks at the front of the lists that have left
        self.start = self.end = self.nbytes = 0

    def append(self, chunk: Chunk) -> None:
        """Add the chunk that follows the last; others leave, if there is no room."""
        self._chunks.append(chunk)
        self._positions.append(self.end)
        self.end += chunk.positions
        self.nbytes += chunk.nbytes + PIECE_BYTES
        while self.nbytes > self._max_bytes:
            self._drop_first()

    def _drop_first(self) -> None:
        chunk = self._chunks[self._left]
        assert chunk is not None
        self._chunks[self._left] = None
        self._left += 1
        self.start += chunk.positions
        self.nbytes -= chunk.nbytes + PIECE_BYTES
        if 2 * self._left > len(self._chunks):  # amortized: each chunk is moved once
            del self._chunks[: self._left], self._positions[: self._left]
            self._left = 0

    def read(self, first: int, end: int, max_elements: int, max_bytes: int) -> Chunk:
        """Return elements from position `first` on, or an error: at least one, at most to `end`."""
        index = bisect_right(self._positions, first, lo=self._left) - 1
        queue = ChunkQueue()
        stop = min(end, first + max_elements)
        while index < len(self._chunks) and self._positions[index] < stop:
            chunk, begin = self._chunks[index], self._positions[index]
            assert chunk is not None
            queue.put(chunk.part(max(0, first - begin), min(chunk.positions, stop - begin)))
            if queue.nbytes > max_bytes:
                break
            index += 1
        return queue.take(max_elements, max_bytes)


# The cross-trainer cache is what the first trainer was sent; read-ahead does not count, or else
# read-ahead would push out what the next trainers are about to read. (docs/decisions/071)
class SlidingWindow(Buffer):
    """Each trainer gets each element, unless it is too slow; its clients share them.

    Args:
        cache_bytes: about the most bytes of elements that are kept for slower trainers.
    """

    keeps_sent = True

    def __init__(self, cache_bytes: int) -> None:
        self._cache_bytes = cache_bytes
        self._window = _Window(cache_bytes)
        self._ahead = ChunkQueue()  # computed, sent to no trainer
        self._trainers: dict[str, _Trainer] = {}
        self._trainer_of: dict[int, _Trainer] = {}
        self._counts: dict[int, dict[str, int]] = {}

    @property
    def nbytes(self) -> int:
        return self._window.nbytes + self._ahead.nbytes

    @property
    def kept_bytes(self) -> int:
        """About how many bytes of elements are kept that a trainer was sent."""
        return self._window.nbytes

    @property
    def undelivered(self) -> int:
        """The number of positions that the slowest trainer has not been sent."""
        return max(map(self.waiting, self._trainer_of), default=0)

    def has_room(self, max_bytes: int) -> bool:
        return has_room(self._ahead, max_bytes)

    def put(self, chunk: Chunk) -> None:
        for part in self._parts(chunk):
            self._ahead.put(part)

    def _parts(self, chunk: Chunk) -> list[Chunk]:
        """Return the parts of a chunk, with an error in place of each element that is too large."""
        if chunk.nbytes <= self._cache_bytes or chunk.error is not None:
            return [chunk]
        parts = [Chunk([element], element_bytes(element)) for element in chunk.elements]
        return [
            Chunk([], 0, self._too_large(part.nbytes)) if part.nbytes > self._cache_bytes else part
            for part in parts
        ]

    def _too_large(self, nbytes: int) -> ErrorRecord:
        return to_record(
            InvalidArgumentError(
                "tf.data service element size is larger than cache size in bytes. Got element "
                f"size: {nbytes} and cache size: {self._cache_bytes}. Increase "
                "`cross_trainer_cache_size_bytes` of the workers, or make elements smaller"
            )
        )

    def join(
        self, client_id: int, trainer: str, consumer_index: int | None, first_frame: int = 0
    ) -> int:
        """Let the client read for its trainer; a new trainer begins at the window's start."""
        for name, other in list(self._trainers.items()):
            # What a trainer misses while it does not read was not skipped.
            if not other.clients:
                other.skip_to(self._window.start)
                other.skipped = 0
                if other.next == self._window.start and not other.returned:
                    del self._trainers[name]
        place = self._trainers.setdefault(trainer, _Trainer(self._window.start))
        place.clients.add(client_id)
        self._trainer_of[client_id] = place
        self._counts[client_id] = {"cache_hits": 0, "cache_misses": 0, "elements_skipped": 0}
        return 0

    def waiting(self, client_id: int) -> int:
        trainer = self._trainer_of[client_id]
        trainer.skip_to(self._window.start)
        returned = sum(end - first for first, end in trainer.returned)
        return returned + self._window.end - trainer.next + self._ahead.positions

    def take(self, client_id: int, max_elements: int, max_bytes: int) -> Chunk:
        """Return what the client's trainer has not been sent.

        Of one that is ahead of all others, it is added to the window.
        """
        trainer = self._trainer_of[client_id]
        trainer.skip_to(self._window.start)
        first, end = trainer.first
        # A larger piece would push all of a small window out, before others have read it.
        max_bytes = min(max_bytes, self._cache_bytes // PIECES)
        if first < self._window.end:
            read_to = self._window.end if end is None else end
            chunk = self._window.read(first, read_to, max_elements, max_bytes)
            self._count(client_id, "cache_hits", chunk.positions)
        else:
            taken = self._ahead.take(max_elements, max_bytes)
            chunk = Chunk(taken.elements, taken.nbytes, taken.error, shared=True, position=first)
            self._window.append(chunk)
            self._count(client_id, "cache_misses", chunk.positions)
        trainer.advance(first + chunk.positions)
        self._count(client_id, "elements_skipped", trainer.skipped)
        self._count(client_id, "elements_lost", trainer.lost)
        trainer.skipped = trainer.lost = 0
        return chunk

    def give_back(self, client_id: int, chunks: Sequence[Chunk]) -> None:
        """Take back chunks for other clients of the client's trainer, which may join later."""
        trainer = self._leave(client_id)
        for chunk in chunks:
            if trainer is not None and chunk.position is not None:
                trainer.give_back(chunk.position, chunk.position + chunk.positions)

    def lose(self, client_id: int, chunks: Sequence[Chunk]) -> int:
        """Return 0: other trainers get the elements; for that of the client, they are counted."""
        trainer = self._leave(client_id)
        if trainer is not None:
            trainer.lost += sum(chunk.positions for chunk in chunks)
        return 0

    def _leave(self, client_id: int) -> _Trainer | None:
        trainer = self._trainer_of.pop(client_id, None)
        self._counts.pop(client_id, None)
        if trainer is not None:
            trainer.clients.discard(client_id)
        return trainer

    def finish(self, *, cut: bool) -> None:
        if not cut:
            error = InvalidArgumentError(
                "Cross-trainer caching requires the input dataset to be infinite. However, it "
                "reached the end of sequence. Add `repeat()` to the dataset"
            )
            self._ahead.put(Chunk([], 0, to_record(error)))

    def counts(self, client_id: int) -> dict[str, int]:
        return self._counts.get(client_id, {})

    def _count(self, client_id: int, name: str, number: int) -> None:
        if number:
            counts = self._counts[client_id]
            self._counts[client_id] = {**counts, name: counts.get(name, 0) + number}
