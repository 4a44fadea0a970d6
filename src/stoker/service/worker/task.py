"""One task on its worker: what it has produced, who reads it, and what each reader is sent."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.worker.buffer import Buffer, new_buffer
from stoker.service.worker.reading import Reading
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
        readings: by client.
        queues: the splits of each (source, repetition) that is being read.
        exhausted: the pipeline is at its end.
        full: the pipeline waits for room.
        lost: positions dropped because their client was lost.
        counts: what the pipeline has counted, such as errors ignored.
    """

    start: m.TaskStart
    buffer: Buffer = field(init=False)
    readings: dict[int, Reading] = field(default_factory=dict)
    queues: dict[tuple[int, int], SplitQueue] = field(default_factory=dict)
    exhausted: bool = False
    full: bool = False
    lost: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.buffer = new_buffer(self.start.buffer)

    def queue(self, source: int, repetition: int) -> SplitQueue:
        """The splits of one pass over one source."""
        key = (source, repetition)
        if key not in self.queues:
            indexed = any(
                each.number == source and each.count is not None
                for each in self.start.split_sources or ()
            )
            self.queues[key] = SplitQueue(self.start.task_id, source, repetition, indexed)
        return self.queues[key]

    def has_room(self, buffer_bytes: int) -> bool:
        """Whether the pipeline may go on.

        Until somebody reads it has one chunk ready: to compute more would keep the interpreter, and
        the trainer's processor, from the client that is about to connect (measured: of 25 ms to the
        first of many scalars, 8).
        """
        if not self.readings:
            return self.buffer.empty
        return self.buffer.has_room(buffer_bytes)

    def deliver(self) -> Iterator[tuple[Reading, f.Message]]:
        """What to send now: frames to readers with room, one each in turn, then what else to say.

        Who was told of the end may have left; what others gave back goes to the rest first.
        """
        readings = [reading for reading in self.readings.values() if reading.connection is not None]
        hungry = sorted(readings, key=lambda reading: reading.ended)
        while hungry := [x for x in hungry if min(x.room) > 0 and self._waiting(x)]:
            for reading in hungry:
                if self._waiting(reading):
                    yield reading, reading.send(self._take(reading))
        if len(readings) > 1:  # whoever was served first goes last next time
            first = readings[0]
            self.readings[first.client_id] = self.readings.pop(first.client_id)
        for reading in readings:
            yield from ((reading, message) for message in self._news(reading))

    def _waiting(self, reading: Reading) -> int:
        """Return how many positions the client could be sent now, if it had credit."""
        return reading.backlog.positions + self.buffer.waiting(reading.client_id)

    def _take(self, reading: Reading) -> Chunk:
        """Remove the client's next frame: from its backlog first."""
        elements, nbytes = reading.frame_room
        most = min(elements, FRAME_ELEMENTS), min(nbytes, FRAME_BYTES)
        if reading.backlog.positions:
            return reading.backlog.take(*most)
        return self.buffer.take(reading.client_id, *most)

    def _news(self, reading: Reading) -> Iterator[f.Message]:
        """What a reader should know besides its frames: counts, what waits or not, the end."""
        if self.counts != reading.told:
            reading.told = self.counts
            yield f.Counts(self.counts)
        if waiting := self._waiting(reading):
            # With credit that is not used yet, bytes are what holds it back: more credit would only
            # be kept from other workers.
            if reading.metered and not reading.announced and reading.room[0] <= 0:
                reading.announced, reading.ended = True, False
                yield f.Ready(waiting)
            return
        if reading.metered and (unused := reading.return_credit()):
            yield f.Ready(0, unused)
        if self.exhausted and not reading.ended:
            reading.ended = True
            yield f.End(reading.next_number)
