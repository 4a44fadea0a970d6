"""One task on its worker: its buffer, its readers, and the messages for them."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.task_evidence import TaskEvidence, encode
from stoker.service.worker.buffers.buffer import Buffer
from stoker.service.worker.buffers.buffer_policies import DEFAULT_CACHE_BYTES, new_buffer
from stoker.service.worker.buffers.chunk_queue import FRAME_BYTES, FRAME_ELEMENTS
from stoker.service.worker.tasks.reader import Reader
from stoker.service.worker.tasks.round_trip import RoundTrip
from stoker.service.worker.tasks.split_queue import SplitQueue
from stoker.wire import frames as f

REMEMBERED_RELEASED = 4096
"""Most released clients that a task remembers. One that was released before as many others, did not
notice, and reads again is refused by the dispatcher, and gives back what it was sent."""


REPEATED_ENDS = 16
"""Latest epochs of sources whose end is reported again on a new session. If the report is lost, the
dispatcher keeps the epoch's splits until the iteration ends."""

NOTHING_COMPUTED = m.TaskReport(0, 0)


@dataclass
class Task:
    """One iteration's work here.

    Attributes:
        start: its description.
        round_trip: the time that the dispatcher takes to answer an announcement of splits.
        cache_bytes: about the most bytes of a cross-trainer cache.
        readers: client → its state.
        queues: (source, source_epoch) → its splits, while it is read.
        read: the latest requests that reported the end of an epoch of a source.
        ended: the pipeline computes no more.
        cut: the worker drains, so the pipeline ended before the data.
        leaving: the consumers of a coordinated read are asked to leave the task.
        full: the pipeline waits for room.
        dropped: the number of positions that were sent to clients that were lost.
        released: the latest clients that were released, which may not read again.
        reported: the progress last sent to the dispatcher.
        counts: totals of the pipeline, such as errors ignored.
        computed: totals of what the pipeline has computed.
        evidence: where its time goes, encoded for `Report`.
    """

    start: m.TaskStart
    round_trip: RoundTrip = field(default_factory=RoundTrip)
    cache_bytes: int = DEFAULT_CACHE_BYTES
    buffer: Buffer = field(init=False)
    readers: dict[int, Reader] = field(default_factory=dict)
    queues: dict[tuple[int, int], SplitQueue] = field(default_factory=dict)
    read: deque[m.SplitRequest] = field(default_factory=lambda: deque(maxlen=REPEATED_ENDS))
    ended: bool = False
    cut: bool = False
    leaving: bool = False
    full: bool = False
    dropped: int = 0
    released: dict[int, None] = field(default_factory=dict)
    reported: m.TaskProgress = field(init=False)
    counts: dict[str, int] = field(default_factory=dict)
    computed: m.TaskReport = NOTHING_COMPUTED
    evidence: bytes = b""
    _chunks: int = 0
    _filled: float = 0.0
    _measured_last: bool = False

    def __post_init__(self) -> None:
        self.buffer = new_buffer(self.start.mode, self.cache_bytes)
        self.reported = m.TaskProgress(self.start.task_id)

    def queue(self, source: int, source_epoch: int) -> SplitQueue:
        """Return the splits of one epoch of one source."""
        key = (source, source_epoch)
        if key not in self.queues:
            indexed = any(
                each.number == source and each.count is not None
                for each in self.start.mode.split_sources or ()
            )
            self.queues[key] = SplitQueue(
                self.start.task_id,
                source,
                source_epoch,
                indexed,
                self.round_trip,
                on_demand=self.buffer.in_runs,
            )
        return self.queues[key]

    def release(self, client_id: int) -> Reader | None:
        """Forbid a client to read again; return its state, if it has read."""
        self.released[client_id] = None
        if len(self.released) > REMEMBERED_RELEASED:
            del self.released[next(iter(self.released))]
        return self.readers.pop(client_id, None)

    def skip(self, reader: Reader, frame: int) -> None:
        """Let a reader that was sent nothing begin at a later frame, if it can."""
        if frame > reader.next_number:
            skipped = self.buffer.skip(reader.client_id, frame)
            if skipped is not None:
                reader.begin_at(skipped)

    def credited(self, reader: Reader, credit: f.Credit) -> None:
        """Apply a `Credit` of a reader, which may skip frames by it."""
        reader.credit(credit)
        self.skip(reader, credit.consumed)
        self.buffer.consumed(reader.client_id, credit.consumed)

    def give_back(self, reader: Reader, consumed: tuple[int, int] | None) -> None:
        """Take back what a reader that has left has not consumed.

        Args:
            reader: no longer one of `readers`.
            consumed: the values of `GiveBack`; ``None`` if they are unknown, as it was lost.
        """
        if consumed is not None:
            self.buffer.give_back(reader.client_id, reader.give_back(*consumed))
        else:
            self.dropped += self.buffer.lose(reader.client_id, reader.give_back(0, 0))

    @property
    def progress(self) -> m.TaskProgress:
        """The message about its state."""
        exhausted = self.ended and not self.cut
        whole = not self.undelivered and (self.cut or not self.buffer.keeps_sent)
        # Other workers yield what no consumer has read of a task without splits: it is not lost.
        unread = self.cut and self.start.mode.split_sources is None and self.left
        delivered = self.ended and (whole or unread)
        computed = self.computed if self.ended and self.computed != NOTHING_COMPUTED else None
        return m.TaskProgress(
            self.start.task_id,
            exhausted,
            delivered,
            dropped=self.dropped,
            computed=computed,
            leaving=self.leaving,
        )

    @property
    def left(self) -> bool:
        """True if all consumers of a coordinated read have left the task."""
        return self.leaving and self.buffer.abandoned

    @property
    def undelivered(self) -> int:
        """The number of positions that are not known to be consumed."""
        return self.buffer.undelivered + sum(
            reader.kept_positions + reader.backlog.positions for reader in self.readers.values()
        )

    # Until a client reads a task, one chunk is enough: a cheap pipeline would occupy the
    # interpreter while the client connects. (docs/decisions/070)
    def has_room(self, buffer_bytes: int) -> bool:
        """Return whether the pipeline may continue.

        Without a reader it computes one chunk only: more would keep the interpreter, and the
        trainer's processor, from the client that is about to connect (measured: 8 of 25 ms to the
        first of many scalars).
        """
        return self.buffer.has_room(buffer_bytes if self.readers else 0)

    def put(self, chunk: Chunk, buffer_bytes: int) -> None:
        """Add what the pipeline computed next; `buffer_bytes` is the size of the buffer."""
        self._count(chunk)
        self._chunks += 1
        self._filled += min(1.0, self.buffer.nbytes / buffer_bytes)
        for reader in self.readers.values():
            reader.chunks += 1
            reader.backlogged += self._waiting(reader) > 0
        self.buffer.put(chunk)

    def _count(self, chunk: Chunk) -> None:
        """Add what the pipeline has computed to the totals."""
        before, errors = self.computed, chunk.error is not None
        self.computed = m.TaskReport(
            before.elements + len(chunk.elements),
            before.bytes + chunk.nbytes,
            before.errors + errors,
        )

    def measured(self, evidence: TaskEvidence) -> None:
        """Add the state of the buffer to the evidence that readers get.

        The last one counts: another thread may be late with an older one.
        """
        if self._measured_last:
            return
        self._measured_last = evidence.ended
        occupancy = None if self.buffer.keeps_sent else self._filled / max(1, self._chunks)
        self.evidence = encode(
            msgspec.structs.replace(
                evidence,
                occupancy=occupancy,
                chunks=self._chunks,
                elements=self.computed.elements + self.computed.errors,
                bytes=self.computed.bytes,
            )
        )

    def finish(self) -> None:
        """Handle the end of the pipeline."""
        self.ended = True
        self.buffer.finish(cut=self.cut)

    def deliver(self) -> Iterator[tuple[Reader, f.Message]]:
        """Yield the messages to send: frames for readers with credit, in turn, then other messages.

        Readers that were sent `TaskEnd` may have left: elements given back go to the others first.
        """
        readers = [reader for reader in self.readers.values() if reader.connection is not None]
        hungry = sorted(readers, key=lambda reader: reader.ended)
        # One frame each in turn, so that a fast reader does not take the whole buffer.
        while hungry := [x for x in hungry if min(x.room) > 0 and self._waiting(x)]:
            for reader in hungry:
                if self._waiting(reader):
                    frame = reader.send(self._take(reader))
                    yield from ((reader, message) for message in self._new_counts(reader))
                    yield reader, frame
        if len(readers) > 1:  # round robin: the first goes last next time
            first = readers[0]
            self.readers[first.client_id] = self.readers.pop(first.client_id)
        for reader in readers:
            yield from ((reader, message) for message in self._updates(reader))

    def _waiting(self, reader: Reader) -> int:
        """Return how many positions the client could be sent now, if it had credit."""
        return reader.backlog.positions + self.buffer.waiting(reader.client_id)

    def _take(self, reader: Reader) -> Chunk:
        """Remove the client's next frame: from its backlog first."""
        elements, nbytes = reader.frame_room
        most_elements = self.buffer.max_frame_elements or FRAME_ELEMENTS
        most = min(elements, most_elements), min(nbytes, FRAME_BYTES)
        if reader.backlog.positions:
            return reader.backlog.take(*most)
        return self.buffer.take(reader.client_id, *most)

    def _new_counts(self, reader: Reader) -> Iterator[f.Counts]:
        """Yield `Counts` if they have changed; before a frame, so that they include it."""
        counts = self.counts
        if of_reader := self.buffer.counts(reader.client_id):
            counts = {**counts, **of_reader}
        if counts != reader.reported_counts:
            reader.reported_counts = counts
            yield f.Counts(counts)

    def _updates(self, reader: Reader) -> Iterator[f.Message]:
        """Yield the messages for a reader besides its frames.

        They are `Counts`, `Report`, `Ready` and `TaskEnd`.
        """
        yield from self._new_counts(reader)
        if reader.reports and reader.reported is not self.evidence:
            reader.reported = self.evidence
            yield f.Report(self.evidence, reader.chunks, reader.backlogged)
        if waiting := self._waiting(reader):
            # If unused credit is left, the limit in bytes blocks the reader: more credit would only
            # be missing at other workers.
            if reader.metered and not reader.announced and reader.room[0] <= 0:
                reader.announced, reader.ended = True, False
                yield f.Ready(waiting)
            return
        if reader.metered and (unused := reader.return_credit()):
            yield f.Ready(0, unused)
        if self.ended and not reader.ended:
            reader.ended = True
            yield f.TaskEnd(reader.next_number)
