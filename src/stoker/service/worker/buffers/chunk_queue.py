"""A queue of chunks that is cut into frames."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from stoker.service.chunk import Chunk

# The cost of a frame is waking threads: 16,500 images/s in frames of 1 MiB, 24,500 in frames of 4
# MiB. (docs/decisions/024)
FRAME_BYTES = 4 << 20
"""Most bytes of a frame, about (or one element). With 1 MiB, images of 150 KB cost both sides half
as much again; with 8 MiB no less, and an element that the user keeps pins more memory."""

FRAME_ELEMENTS = 8192
"""Most elements of a frame: enough to make the cost of a frame negligible."""


class ChunkQueue:
    """Chunks in order, from which frames of any size are cut.

    Attributes:
        positions: the number of positions in the queue.
        nbytes: about how many bytes they take.
    """

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._taken = 0  # of the first chunk
        self._taken_bytes = 0
        self.positions = 0
        self.nbytes = 0

    def put(self, chunk: Chunk) -> None:
        """Append a chunk."""
        if chunk.positions:
            self.positions += chunk.positions
            self.nbytes += chunk.nbytes
            self._chunks.append(chunk)

    def put_back(self, chunks: Sequence[Chunk]) -> None:
        """Insert chunks at the front."""
        waiting = self.drain()
        for chunk in (*chunks, *waiting):
            self.put(chunk)

    def drain(self) -> list[Chunk]:
        """Remove and return all chunks."""
        chunks = list(self._chunks)
        if self._taken:
            chunks[0] = chunks[0].after(self._taken)
        self._chunks.clear()
        self._taken = self._taken_bytes = self.positions = self.nbytes = 0
        return chunks

    def take(self, max_elements: int, max_bytes: int) -> Chunk:
        """Remove and return the next elements, at least one; an error comes alone.

        They are consecutive, if their positions are known. The queue must not be empty.
        """
        if self._chunks[0].error is not None:
            return self._remove_first()
        elements: list[Any] = []
        nbytes, shared = 0, False
        position = end = self._position
        while len(elements) < max_elements and self._chunks and self._chunks[0].error is None:
            count = self._fitting(max_elements - len(elements), max_bytes - nbytes)
            # A client gives a frame back by its first position and its length.
            if elements and (not count or self._position != end):
                break
            part = self._remove(max(1, count))
            elements += part.elements
            nbytes += part.nbytes
            shared = shared or part.shared
            end = part.end
        return Chunk(elements, nbytes, shared=shared, position=position)

    @property
    def _position(self) -> int | None:
        """The position of the first element, if it is known."""
        position = self._chunks[0].position
        return None if position is None else position + self._taken

    def _fitting(self, max_elements: int, max_bytes: int) -> int:
        """Return how many of the remaining elements of the first chunk may be taken."""
        first = self._chunks[0]
        count = len(first.elements)
        by_size = count * max(0, max_bytes) // max(1, first.nbytes)
        return min(max_elements, by_size, count - self._taken)

    def _remove(self, count: int) -> Chunk:
        first, start = self._chunks[0], self._taken
        stop = start + count
        if start == 0 and stop == len(first.elements):
            return self._remove_first()
        # From totals, not from rounded shares: the parts of a chunk add up to its size.
        total = first.nbytes * stop // len(first.elements)
        part = Chunk(
            first.elements[start:stop],
            total - self._taken_bytes,
            shared=first.shared,
            position=self._position,
        )
        self._taken, self._taken_bytes = stop, total
        self.positions -= count
        self.nbytes -= part.nbytes
        if stop == len(first.elements):
            self._chunks.popleft()
            self._taken = self._taken_bytes = 0
        return part

    def _remove_first(self) -> Chunk:
        chunk = self._chunks.popleft()
        self.positions -= chunk.positions
        self.nbytes -= chunk.nbytes
        return chunk
