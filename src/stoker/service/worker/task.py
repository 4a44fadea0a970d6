"""One task on its worker: what it has produced, who reads it, and what each reader is sent."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.worker.buffer import Buffer, new_buffer
from stoker.service.worker.reader_state import ReaderState
from stoker.service.worker.splits import SplitQueue
from stoker.wire import frames as f

FRAME_BYTES = 4 << 20
"""A frame holds about so many bytes at most (or one element). With 1 MiB, images of 150 KB cost
both sides half as much again; with 8 MiB no less, and what is kept of a frame keeps more."""

FRAME_ELEMENTS = 8192
"""A frame holds so many elements at most: enough to make the cost of a frame vanish."""


@dataclass
class Task:
    """One iteration's work here.

    Attributes:
        readers: by client.
        queues: the splits of each (source, source_epoch) that is being read.
        exhausted: the pipeline is at its end.
        full: the pipeline waits for room.
        lost: positions dropped because their client was lost.
        counts: what the pipeline has counted, such as errors ignored.
    """

    start: m.TaskStart
    buffer: Buffer = field(init=False)
    readers: dict[int, ReaderState] = field(default_factory=dict)
    queues: dict[tuple[int, int], SplitQueue] = field(default_factory=dict)
    exhausted: bool = False
    full: bool = False
    lost: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.buffer = new_buffer(self.start.buffer)

    def queue(self, source: int, source_epoch: int) -> SplitQueue:
        """The splits of one pass over one source."""
        key = (source, source_epoch)
        if key not in self.queues:
            indexed = any(
                each.number == source and each.count is not None
                for each in self.start.split_sources or ()
            )
            self.queues[key] = SplitQueue(self.start.task_id, source, source_epoch, indexed)
        return self.queues[key]

    def has_room(self, buffer_bytes: int) -> bool:
        """Whether the pipeline may go on.

        Until somebody reads it has one chunk ready: to compute more would keep the interpreter, and
        the trainer's processor, from the client that is about to connect (measured: of 25 ms to the
        first of many scalars, 8).
        """
        if not self.readers:
            return self.buffer.empty
        return self.buffer.has_room(buffer_bytes)

    def deliver(self) -> Iterator[tuple[ReaderState, f.Message]]:
        """What to send now: frames to readers with room, one each in turn, then what else to say.

        Who was told of the end may have left; what others gave back goes to the rest first.
        """
        readers = [reader for reader in self.readers.values() if reader.connection is not None]
        hungry = sorted(readers, key=lambda reader: reader.ended)
        while hungry := [x for x in hungry if min(x.room) > 0 and self._waiting(x)]:
            for reader in hungry:
                if self._waiting(reader):
                    yield reader, reader.send(self._take(reader))
        if len(readers) > 1:  # whoever was served first goes last next time
            first = readers[0]
            self.readers[first.client_id] = self.readers.pop(first.client_id)
        for reader in readers:
            yield from ((reader, message) for message in self._news(reader))

    def _waiting(self, reader: ReaderState) -> int:
        """Return how many positions the client could be sent now, if it had credit."""
        return reader.backlog.positions + self.buffer.waiting(reader.client_id)

    def _take(self, reader: ReaderState) -> Chunk:
        """Remove the client's next frame: from its backlog first."""
        elements, nbytes = reader.frame_room
        most = min(elements, FRAME_ELEMENTS), min(nbytes, FRAME_BYTES)
        if reader.backlog.positions:
            return reader.backlog.take(*most)
        return self.buffer.take(reader.client_id, *most)

    def _news(self, reader: ReaderState) -> Iterator[f.Message]:
        """What a reader should know besides its frames: counts, what waits or not, the end."""
        if self.counts != reader.told:
            reader.told = self.counts
            yield f.Counts(self.counts)
        if waiting := self._waiting(reader):
            # With credit that is not used yet, bytes are what holds it back: more credit would only
            # be kept from other workers.
            if reader.metered and not reader.announced and reader.room[0] <= 0:
                reader.announced, reader.ended = True, False
                yield f.Ready(waiting)
            return
        if reader.metered and (unused := reader.return_credit()):
            yield f.Ready(0, unused)
        if self.exhausted and not reader.ended:
            reader.ended = True
            yield f.End(reader.next_number)
