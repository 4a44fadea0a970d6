"""Buffer of a task by position: each client gets the positions that it wants."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from stoker.errors import UnavailableError
from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.buffer import MAX_ELEMENTS, Buffer
from stoker.service.worker.buffers.chunk_queue import FRAME_BYTES, FRAME_ELEMENTS
from stoker.service.worker.wants.position_reader import PositionReader


class PositionBuffer(Buffer):
    """The positions that clients want, in turn, and the computed ones until they are sent.

    Args:
        length: the number of positions of the epoch.
    """

    recomputed = True

    def __init__(self, length: int) -> None:
        self._length = length
        self._ended = False
        self._readers: dict[int, PositionReader] = {}
        self._turns: deque[range] = deque()
        self._element_bytes = 0.0

    @property
    def nbytes(self) -> int:
        return sum(reader.nbytes for reader in self._readers.values())

    @property
    def undelivered(self) -> int:
        """Nothing: clients ask another worker for what they do not get."""
        return 0

    # ── clients ───────────────────────────────────────────────────────────────────────────────────
    def new_reader(
        self, client_id: int, max_bytes: int, consumer_index: int | None
    ) -> PositionReader:
        if self._ended:
            raise UnavailableError("the worker stops: other workers compute its positions")
        self._readers[client_id] = reader = PositionReader(client_id, max_bytes, self._length)
        return reader

    def waiting(self, client_id: int) -> int:
        return self._readers[client_id].positions

    def take(self, client_id: int, max_elements: int, max_bytes: int) -> Chunk:
        return self._readers[client_id].take(max_elements, max_bytes)

    def give_back(self, client_id: int, chunks: Sequence[Chunk]) -> None:
        del self._readers[client_id]

    def lose(self, client_id: int, chunks: Sequence[Chunk]) -> int:
        del self._readers[client_id]
        return 0

    # ── computing ─────────────────────────────────────────────────────────────────────────────────
    def has_room(self, max_bytes: int) -> bool:
        """Return whether the pipeline may compute more; always if a client needs a position."""
        return self._fits(max_bytes) or any(x.lacks_needed for x in self._readers.values())

    def _fits(self, max_bytes: int) -> bool:
        positions = sum(reader.positions for reader in self._readers.values())
        # One chunk is always computed ahead, even if it is larger than the buffer.
        return not positions or (self.nbytes < max_bytes and positions < MAX_ELEMENTS)

    def turn(self, max_bytes: int) -> range | None:
        """Return the positions that the pipeline computes next; ``None`` if it has to wait.

        Clients take turns, those first that need their next position. Without room only these.
        """
        waiting = [reader for reader in self._readers.values() if reader.waits]
        chosen = [reader for reader in waiting if reader.waits_for_needed]
        if waiting and not chosen and self._fits(max_bytes):
            # A client that does not read must leave room for the others.
            share = max_bytes / len(self._readers)
            chosen = [x for x in waiting if not x.positions or x.nbytes < share]
        if not chosen:
            return None
        reader = chosen[0]
        self._readers[reader.client_id] = self._readers.pop(reader.client_id)
        turn = reader.take_turn(self._most_positions(max_bytes))
        self._turns.append(turn)
        return turn

    def _most_positions(self, max_bytes: int) -> int:
        """Return the longest turn: of about a frame, and a single element while sizes are unknown.

        A turn is computed as a whole, also if another client needs a position meanwhile.
        """
        if not self._element_bytes:
            return 1
        nbytes = min(FRAME_BYTES, max_bytes // 4)
        return max(1, min(int(nbytes / self._element_bytes), FRAME_ELEMENTS))

    def put(self, chunk: Chunk) -> None:
        """Add what the pipeline computed: consecutive positions of its turns, in their order."""
        [span] = chunk.spans
        turn = self._turns.popleft()
        if span[0] != turn[0]:
            raise AssertionError(f"positions {span} were computed in place of {turn}")
        if rest := turn[len(span) :]:
            self._turns.appendleft(rest)
        latest = max(1, chunk.nbytes) / chunk.positions
        # Larger elements count at once: the turn after them must not be too long.
        self._element_bytes = max(latest, (self._element_bytes + latest) / 2)
        readers = [reader for reader in self._readers.values() if reader.wants(span)]
        shared = replace(chunk, shared=True) if len(readers) > 1 else chunk
        for reader in readers:
            reader.put(shared)

    def finish(self, *, cut: bool) -> None:
        self._ended = True
        self._readers.clear()
