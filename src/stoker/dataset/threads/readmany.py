"""Concurrent read-ahead of many streams on the pool, for parallel interleave."""

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.measure.sampling import Section
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.threads import pool
from stoker.dataset.threads.chunkbuffer import ChunkBuffer
from stoker.dataset.threads.readahead import CHUNK_BYTES, ReadAhead

# A call on the pool reads streams for this long, since more streams and pipelines may wait for a
# thread. Submitting a call costs about 20 us.
_QUANTUM_SECONDS = 1e-3


class ReadMany:
    """Makes a stream of each element of `stream` and reads up to `most_open` streams ahead.

    Streams are read in the order of their elements by at most `limit` threads of the pool; each has
    its own bounded buffer, so that a slow stream delays no second stream while a thread is free.
    Streams that the consumer has started have priority, and a thread of two or more is reserved for
    these streams. A consumer that waits for a stream that no thread reads, reads the stream itself,
    so that every waiting thread waits for code that is running.

    Args:
        stream: the elements; read on a dedicated thread.
        make_stream: makes the stream of an element, or `Failure`, and its number; user functions
            run when the stream is first read, on a thread of the pool.
        limit: the most streams read concurrently.
        most_open: the most streams being read or waiting for that.
        max_elements: the most buffered elements of a stream.
        max_bytes: about the most buffered bytes of a stream; a single element always fits.

    Attributes:
        work: the time in which threads read the streams, and waited for room in all buffers.
    """

    def __init__(
        self,
        stream: Stream,
        make_stream: Callable[[int, Any], Stream],
        *,
        limit: int,
        most_open: int,
        max_elements: int,
        max_bytes: int,
    ) -> None:
        self._make_stream = make_stream
        self._limit = limit
        self._most_open = most_open
        self._max_elements = max_elements
        self._max_bytes = max_bytes
        self._index = 0
        self._live: dict[BufferedSource, None] = {}
        self._new: deque[BufferedSource] = deque()
        self._waiting: deque[BufferedSource] = deque()
        """Sources with room in their buffer and no thread."""
        self._full: set[BufferedSource] = set()
        """Sources that wait for room in their buffer."""
        self._reading = 0
        self._awaited: BufferedSource | None = None
        self.work = Work(threads=limit, includes_inputs=True)
        self._lease = pool.lease(limit)
        # The thread that reads the elements waits for the end of a stream, not for room.
        self._reader = ReadAhead(stream, self._room, self._accept, Work())
        self._lock = self._reader.lock

    def next(self) -> Stream | None:
        """Return the stream of the next element, None at the end; wait for the element only."""
        self._reader.start()
        with self._lock:
            while not self._new:
                self._reader.check_open()
                if self._reader.ended:
                    return None
                self._reader.arrived.wait()
            return self._begin_new()

    def ready(self, source: "BufferedSource", max_elements: int, max_bytes: int) -> list[Any]:
        """Return the buffered elements of `source` up to its first failure, without waiting."""
        with self._lock:
            if source.buffer.fails_next():
                return []
            return self._take(source, max_elements, max_bytes)

    def take_any(self, max_elements: int, max_bytes: int, block: int) -> list[Any]:
        """Return ready elements of any streams, `block` of each in turn; [] at the end.

        Raises:
            Exception: if the next item of a stream is a failure.
        """
        self._reader.start()
        while True:
            with self._lock:
                self._reader.check_open()
                while self._new:
                    self._begin_new()
                if taken := self._take_ready(max_elements, max_bytes, block):
                    return taken
                if self._reader.ended and not self._live:
                    return []
                in_time = self._reader.arrived.wait(pool.HELP_SECONDS if self._waiting else None)
                claimed = None if in_time else self._claim(self._most_wanted())
            if claimed is not None:
                self._read(claimed)

    def take(self, source: "BufferedSource", max_elements: int, max_bytes: int) -> list[Any]:
        """Return elements of `source` up to the next failure, at least one; [] at its end.

        Raises:
            BaseException: the failure, if the next item is a failure.
        """
        while True:
            with self._lock:
                self._reader.check_open()
                if source.buffer or source.ended:
                    return self._take(source, max_elements, max_bytes)
                claimed = self._claim(source) if source.waiting else None
                if claimed is None:
                    self._awaited = source
                    self._reader.arrived.wait()
                    self._awaited = None
            if claimed is not None:
                self._read(claimed)

    def advance(self, source: "BufferedSource", n: int) -> int:
        """Skip `n` positions of `source`; return how many there were."""
        with self._lock:
            source.excluded = True  # a thread that reads the stream stops after this read
            while source.reading:
                self._reader.arrived.wait()
            self._stop_waiting(source)
            skipped = source.buffer.drop(n)
        try:
            if skipped < n and not source.ended:
                skipped += source.stream.advance(n - skipped)
                source.ended = skipped < n
        finally:
            with self._lock:
                source.excluded = False
                self._want(source)
        return skipped

    def drop(self, source: "BufferedSource") -> None:
        """Read no more of `source` and close its stream; a thread that reads it closes it later."""
        with self._lock:
            if source.closed:
                return
            source.closed = True
            source.buffer.clear()
            self._stop_waiting(source)
            self._live.pop(source, None)
            self._reader.wake()
            reading = source.reading
        if not reading:
            source.stream.close()

    def filled(self) -> float:
        """Return the mean fraction of the buffers in use, of the streams that are read."""
        with self._lock:
            live = list(self._live)
            return sum(source.buffer.filled() for source in live) / max(1, len(live))

    def close(self) -> None:
        """Close all streams without waiting for running functions; idempotent."""
        if self._lease.pool.forked():  # no threads after fork, and the lock may be locked
            return
        self._lease.release()
        self._reader.close()
        with self._lock:
            sources = list(self._live)
            self._new.clear()
        with ExitStack() as closing:  # a failure leaves no stream open
            for source in sources:
                closing.callback(self.drop, source)

    def _room(self) -> int:
        return max(0, self._most_open - len(self._live))

    def _accept(self, elements: list[Any]) -> None:
        for element in elements:
            stream = self._make_stream(self._index, element)
            source = BufferedSource(self, self._index, stream, self._max_elements, self._max_bytes)
            self._index += 1
            self._live[source] = None
            self._new.append(source)
            self._want(source)

    def _want(self, source: "BufferedSource") -> None:
        """Request a thread for `source` if its buffer has room."""
        if source.wants_thread():
            source.waiting = True
            self._waiting.append(source)
            self._submit()
        self._note_room(source)

    def _note_room(self, source: "BufferedSource") -> None:
        """Note whether `source` waits for room, and how many threads therefore have no work."""
        if source.awaits_room():
            self._full.add(source)
        else:
            self._full.discard(source)
        idle = self._limit - self._reading - len(self._waiting)
        self.work.put_wait.run(max(0, min(idle, len(self._full))))

    def _stop_waiting(self, source: "BufferedSource") -> None:
        if source.waiting:
            source.waiting = False
            self._waiting.remove(source)
        self._note_room(source)

    def _submit(self) -> None:
        """Submit a call for each source that a thread could read now."""
        wanted = min(len(self._waiting), self._limit - self._reading) - len(self._lease.waiting)
        if wanted > 0 and self._most_wanted() is not None:
            self._lease.submit([self._work] * wanted)

    def _work(self) -> None:
        """Read the sources that wait for a thread, until time is up; runs in the pool."""
        until = time.perf_counter() + _QUANTUM_SECONDS
        while time.perf_counter() < until:
            with self._lock:
                claimed = self._claim(self._most_wanted())
            if claimed is None:
                break
            self._read(claimed, until)

    def _begin_new(self) -> "BufferedSource":
        source = self._new.popleft()
        source.begun = True
        self._submit()  # another source may be read now
        return source

    def _most_wanted(self) -> "BufferedSource | None":
        """Return the source that the next thread must read."""
        if self._awaited is not None and self._awaited.waiting:
            return self._awaited
        source = min(self._waiting, key=BufferedSource.rank, default=None)
        if source is not None and not source.begun and self._limit > 1:
            # One thread is kept for streams that the consumer waits for or will read next: the
            # function of a stream that is read early may be slow.
            early = sum(other.reading and not other.begun for other in self._live)
            if early >= self._limit - 1:
                return None
        return source

    def _claim(self, source: "BufferedSource | None") -> "BufferedSource | None":
        """Reserve `source` for `_read`; return None if enough threads are reading."""
        if source is None or self._reading >= self._limit or self._reader.closed:
            return None
        source.reading = True
        self._reading += 1
        self._stop_waiting(source)
        return source

    def _read(self, source: "BufferedSource", until: float = 0.0) -> None:
        """Read `source` once, and on while there is room and time; never raise."""
        more, abandoned = True, False
        while more:
            start = time.perf_counter()
            items, ended = source.read()
            seconds = time.perf_counter() - start
            with self._lock:
                self.work.busy += seconds
                if not source.closed:
                    source.buffer.put(items)
                    source.ended = ended
                more = time.perf_counter() < until and source.readable()
                if not more:
                    source.reading = False
                    self._reading -= 1
                    self._want(source)
                    self._submit()  # a thread is free for another source
                abandoned = source.closed
                self._reader.arrived.notify_all()
            del items  # the thread must keep nothing alive while reading
        if abandoned:
            source.close_abandoned()

    def _take(self, source: "BufferedSource", max_elements: int, max_bytes: int) -> list[Any]:
        try:
            return source.buffer.take(max_elements, max_bytes)
        finally:
            self._want(source)

    def _take_ready(self, max_elements: int, max_bytes: int, block: int) -> list[Any]:
        """Return buffered elements of any sources, up to a failure."""
        taken: list[Any] = []
        found = True
        while found and len(taken) < max_elements and (max_bytes > 0 or not taken):
            found = False
            for source in list(self._live):
                if source.ended and not source.buffer:
                    self.drop(source)
                if not source.buffer or (taken and source.buffer.fails_next()):
                    continue
                found = True
                self._live[source] = self._live.pop(source)  # its next turn is the last
                count = min(block, max_elements - len(taken))
                got = self._take(source, count, max(max_bytes, 1))
                taken += got
                max_bytes -= len(got) * source.buffer.unit
                if len(taken) >= max_elements or max_bytes <= 0:
                    break
        return taken


class BufferedSource(Stream):
    """A stream that threads of the pool read ahead, its bounded buffer, and the state of reading.

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

    def __init__(
        self, owner: ReadMany, index: int, stream: Stream, max_elements: int, max_bytes: int
    ) -> None:
        self._owner = owner
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

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        return self._owner.take(self, max_elements, max_bytes)

    def advance(self, n: int) -> int:
        return self._owner.advance(self, n)

    def close(self) -> None:
        self._owner.drop(self)

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
