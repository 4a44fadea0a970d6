"""Limits of the time that a chunk may take."""

import time

CHUNK_SECONDS = 0.5e-3
"""A chunk ends after this much time: half of what `Stream.next_chunk` allows, because the last
element may take as long again."""

# A read this fast took its elements from memory; the next read is expected to do so too.
_PROMPT_SECONDS = 20e-6


def chunk_deadline() -> float:
    """Return the time of `time.perf_counter` at which a chunk begun now should end."""
    return time.perf_counter() + CHUNK_SECONDS


class ChunkPace:
    """Decides if a chunk that has elements may wait for a further read of an input.

    The duration of the next read is estimated from the last read.
    """

    __slots__ = ("_deadline", "_read_began")

    def __init__(self) -> None:
        self._read_began = self._deadline = 0.0

    def begin(self) -> None:
        """Begin a chunk and its first read."""
        self._read_began = time.perf_counter()
        self._deadline = self._read_began + CHUNK_SECONDS

    def allows_read(self) -> bool:
        """End a read; return True if another read may begin."""
        now = time.perf_counter()
        prompt = now - self._read_began < _PROMPT_SECONDS
        self._read_began = now
        return prompt and now < self._deadline
