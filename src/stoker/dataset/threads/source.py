"""A stream that threads of the pool read ahead."""

import logging
from typing import Any

from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.measure.sampling import Section
from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads.chunkbuffer import ChunkBuffer
from stoker.dataset.threads.readahead import CHUNK_BYTES


class BufferedSource:
    """A stream, a bounded buffer of elements that were read, and the state of reading.

    Guarded by the lock of its `ReadMany`, except for `read`, which the thread that has claimed
    the source calls.

    Attributes:
        index: its number among the sources.
        stream: the stream.
        buffer: items read and not consumed.
        ended: the stream has no more items.
        waiting: the source waits for a thread.
        reading: a thread reads the stream.
        excluded: threads must not read the stream, since the consumer does.
        begun: the consumer has started to read it.
        closed: no more items are needed.
    """

    def __init__(self, index: int, stream: Stream, max_elements: int, max_bytes: int) -> None:
        self.index = index
        self.stream = stream
        self.buffer = ChunkBuffer(max_elements, max_bytes)
        self._section = Section()
        self._chunk_bytes = min(CHUNK_BYTES, max_bytes)
        self.ended = False
        self.waiting = False
        self.reading = False
        self.excluded = False
        self.begun = False
        self.closed = False

    def readable(self) -> bool:
        """Return True if more items may be read."""
        return not (self.closed or self.ended or self.excluded) and self.buffer.room() > 0

    def awaits_room(self) -> bool:
        """Return True if a thread would read the stream if the buffer had enough room."""
        return not (self.waiting or self.reading or self.closed or self.ended or self.excluded)

    def wants_thread(self) -> bool:
        """Return True if there is enough room to justify waking a thread."""
        return self.awaits_room() and self.buffer.half_empty()

    def rank(self) -> tuple[bool, int]:
        """Return the key by which sources get a thread, the least first."""
        # Sources that the consumer has started take turns; of the rest, the first is needed first.
        return not self.begun, 0 if self.begun else self.index

    def read(self) -> tuple[list[Any], bool]:
        """Return elements or a failure, and whether the stream has ended."""
        ended = False
        try:
            room = max(1, self.buffer.room())
            items = self._section.read(self.stream, room, self._chunk_bytes)
            ended = not items
            if ended:
                self.stream.close()
        except BaseException as error:  # noqa: BLE001 - raised at its position
            return [Failure(error)], ended
        return items, ended

    def close_abandoned(self) -> None:
        """Close the stream in a thread of the pool, which must survive an error in that."""
        try:
            self.stream.close()
        except Exception:
            logging.getLogger("stoker.dataset").exception(
                "closing a dataset that is no longer read failed"
            )
