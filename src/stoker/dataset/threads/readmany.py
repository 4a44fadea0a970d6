"""Concurrent read-ahead of many streams on the pool, for parallel interleave."""

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads import pool
from stoker.dataset.threads.chunkbuffer import ChunkBuffer
from stoker.dataset.threads.readahead import CHUNK_BYTES, ReadAhead
from stoker.errors import FailedPreconditionError

# Time that a thread reads one stream while others wait for a thread.
_QUANTUM_SECONDS = 1e-3

# A thread returns to the pool after this time, since other pipelines may wait for one.
_LEASE_SECONDS = 5e-3

# Interval in which a consumer of any stream checks whether it should read one itself.
_HELP_SECONDS = 0.05


class ReadMany:
    """Opens a stream for each element of `stream` and reads up to `open_at_once` of them ahead.

    Streams are opened in the order of their elements and read by at most `limit` threads of the
    pool; each has its own bounded buffer, so that a slow stream delays no other while a thread is
    free. Streams that the consumer has started have priority, and one of two or more threads is
    reserved for them. A consumer that waits for a stream that no thread reads, reads it itself, so
    that every waiting thread waits for code that is running.

    Args:
        stream: the elements; read on a dedicated thread.
        open_one: opens the stream of the element with this number; called on many threads.
        limit: the most streams read concurrently.
        open_at_once: the most streams open or waiting to be opened.
        max_elements: the most buffered elements of one stream.
        max_bytes: about the most buffered bytes of one stream; one element always fits.
    """

    def __init__(
        self,
        stream: Stream,
        open_one: Callable[[int, Any], Stream],
        *,
        limit: int,
        open_at_once: int,
        max_elements: int,
        max_bytes: int,
    ) -> None:
        self._open_one = open_one
        self._limit = limit
        self._open_at_once = open_at_once
        self._max_elements = max_elements
        self._max_bytes = max_bytes
        self._index = 0
        self._live: dict[AheadStream, None] = {}
        self._new: deque[AheadStream] = deque()
        self._waiting: deque[AheadStream] = deque()
        """Streams with room in their buffer and no thread."""
        self._reading = 0
        self._asked = 0
        """Number of calls submitted to the pool that have not started."""
        self._consumer_waits = False
        self._awaited: AheadStream | None = None
        self._lease = pool.lease(limit)
        self._reader = ReadAhead(stream, self._room, self._accept)
        self.lock = self._reader.lock

    def next(self) -> "AheadStream | None":
        """Return the stream of the next element, None at the end; wait for the element only."""
        self._reader.start()
        with self.lock:
            while not self._new:
                self._check_open()
                if self._reader.ended:
                    return None
                self._reader.filled.wait()
            return self._begin_new()

    def ready(self, stream: "AheadStream", max_elements: int, max_bytes: int) -> list[Any]:
        """Return the buffered elements of `stream` up to its first failure, without waiting."""
        with self.lock:
            return [] if stream.buffer.fails_next() else stream.take(max_elements, max_bytes)

    def take_any(self, max_elements: int, max_bytes: int, block: int) -> list[Any]:
        """Return ready elements of any streams, `block` of each in turn; [] at the end.

        Raises:
            Exception: if the next item of a stream is a failure.
        """
        self._reader.start()
        while True:
            with self.lock:
                self._check_open()
                while self._new:
                    self._begin_new()
                if taken := self._take_ready(max_elements, max_bytes, block):
                    return taken
                if self._reader.ended and not self._live:
                    return []
                in_time = self._wait(_HELP_SECONDS if self._waiting else None)
                begun = None if in_time else self._begin(self._most_wanted())
            if begun is not None:
                self._read(begun, once=True)

    def await_something(self, stream: "AheadStream") -> None:
        """Wait until `stream` has an element or a failure in its buffer, or has ended."""
        while True:
            with self.lock:
                self._check_open()
                if stream.buffer or stream.ended:
                    return
                begun = self._begin(stream) if stream.waiting else None
                if begun is None:
                    self._awaited = stream
                    self._wait(None)
                    self._awaited = None
            if begun is not None:
                self._read(begun, once=True)

    def exclude(self, stream: "AheadStream") -> None:
        """Exclude threads from reading `stream`; wait for one that does."""
        with self.lock:
            stream.excluded = True
            while stream.reading:
                self._wait(None)
            if stream.waiting:
                stream.waiting = False
                self._waiting.remove(stream)

    def admit(self, stream: "AheadStream") -> None:
        """Let threads read `stream` again, if it has room."""
        with self.lock:
            stream.excluded = False
            self.want(stream)

    def want(self, stream: "AheadStream") -> None:
        """Ask for a thread for `stream` if it has room; with the lock held."""
        if stream.wants_thread():
            stream.waiting = True
            self._waiting.append(stream)
            self._ask()

    def forget(self, stream: "AheadStream") -> bool:
        """Drop `stream`; return whether the caller must close its input."""
        with self.lock:
            if stream.closed:
                return False
            stream.closed = True
            stream.buffer.clear()
            if stream.waiting:
                stream.waiting = False
                self._waiting.remove(stream)
            self._live.pop(stream, None)
            self._reader.wake()
            return not stream.reading

    def open_stream(self, stream: "AheadStream") -> Stream:
        """Return the input of `stream`, opened if necessary, for the one thread that reads it."""
        if stream.input is None:
            element, stream.element = stream.element, None
            if isinstance(element, Failure):
                raise element.error
            stream.input = self._open_one(stream.index, element)
        return stream.input

    def close(self) -> None:
        """Close all streams without waiting for running functions; idempotent."""
        if self._lease.pool.forked():  # no threads after fork, and the lock may be locked
            return
        self._lease.release()
        self._reader.close()
        with self.lock:
            streams = list(self._live)
        with ExitStack() as closing:  # a failure leaves no other open
            for stream in streams:
                closing.callback(stream.close)

    def _room(self) -> int:
        return max(0, self._open_at_once - len(self._live))

    def _accept(self, elements: list[Any]) -> None:
        for element in elements:
            buffer = ChunkBuffer(self._max_elements, self._max_bytes)
            stream = AheadStream(self, self._index, element, buffer)
            self._index += 1
            self._live[stream] = None
            self._new.append(stream)
            self.want(stream)

    def _check_open(self) -> None:
        if self._reader.closed:
            raise FailedPreconditionError("this iterator was closed while it was read")

    def _wait(self, timeout: float | None) -> bool:
        self._consumer_waits = True
        try:
            return self._reader.filled.wait(timeout)
        finally:
            self._consumer_waits = False

    def _ask(self) -> None:
        """Submit a call for each stream that a thread could read now."""
        wanted = min(len(self._waiting), self._limit - self._reading) - self._asked
        if wanted > 0 and self._most_wanted() is not None:
            self._asked += wanted
            self._lease.submit([self._work] * wanted)

    def _work(self) -> None:
        """Read streams that wait for a thread, one after the other; runs in the pool."""
        with self.lock:
            self._asked -= 1
        until = time.perf_counter() + _LEASE_SECONDS
        while time.perf_counter() < until:
            with self.lock:
                begun = self._begin(self._most_wanted())
            if begun is None:
                return
            self._read(begun, once=False)
        with self.lock:
            self._ask()

    def _begin_new(self) -> "AheadStream":
        stream = self._new.popleft()
        stream.begun = True
        self._ask()  # another stream may be read now
        return stream

    def _most_wanted(self) -> "AheadStream | None":
        """Return the stream that the next thread must read."""
        if not self._waiting:
            return None
        stream = min(self._waiting, key=self._rank)
        if not stream.begun and self._limit > 1:
            early = sum(other.reading and not other.begun for other in self._live)
            if early >= self._limit - 1:
                return None
        return stream

    def _rank(self, stream: "AheadStream") -> tuple[bool, bool, int]:
        # Started streams take turns; of the others, the first is needed first.
        begun = stream.begun
        return stream is not self._awaited, not begun, 0 if begun else stream.index

    def _begin(self, stream: "AheadStream | None") -> "AheadStream | None":
        """Claim `stream` for `_read`; return None if enough threads are reading."""
        if stream is None or self._reading >= self._limit or self._reader.closed:
            return None
        self._waiting.remove(stream)
        stream.waiting = False
        stream.reading = True
        self._reading += 1
        return stream

    def _read(self, stream: "AheadStream", *, once: bool) -> None:
        """Read `stream` while it has room and time is left; never raise."""
        until = 0.0 if once else time.perf_counter() + _QUANTUM_SECONDS
        while True:
            items, ended = self._read_chunk(stream)
            with self.lock:
                if not stream.closed:
                    stream.buffer.put(items)
                    stream.ended = ended
                more = time.perf_counter() < until and stream.readable()
                if more and self._consumer_waits:
                    self._reader.filled.notify_all()
            del items  # the thread must keep nothing alive while it reads
            if not more:
                break
        with self.lock:
            stream.reading = False
            self._reading -= 1
            abandoned = stream.closed
            if not abandoned:
                self.want(stream)
            self._ask()
            if self._consumer_waits:
                self._reader.filled.notify_all()
        if abandoned and stream.input is not None:
            try:
                stream.input.close()
            except Exception:  # nobody reads this epoch, but the pool's thread must survive
                logging.getLogger("stoker.dataset").exception(
                    "closing a dataset that is no longer read failed"
                )

    def _read_chunk(self, stream: "AheadStream") -> tuple[list[Any], bool]:
        """Return elements or one failure, and whether the stream has ended."""
        try:
            source = self.open_stream(stream)
        except BaseException as error:  # noqa: BLE001 - raised at its position
            return [Failure(error)], True
        ended = False
        try:
            room = max(1, stream.buffer.room())
            items = source.next_chunk(room, min(CHUNK_BYTES, self._max_bytes))
            ended = not items
            if ended:
                source.close()
        except BaseException as error:  # noqa: BLE001 - raised at its position
            return [Failure(error)], ended
        return items, ended

    def _take_ready(self, max_elements: int, max_bytes: int, block: int) -> list[Any]:
        """Store what was read; called with the lock held."""
        taken: list[Any] = []
        found = True
        while found and len(taken) < max_elements and (max_bytes > 0 or not taken):
            found = False
            for stream in list(self._live):
                if stream.ended and not stream.buffer:
                    stream.close()
                if not stream.buffer or (taken and stream.buffer.fails_next()):
                    continue
                found = True
                self._live[stream] = self._live.pop(stream)  # its next turn is the last
                got = stream.take(min(block, max_elements - len(taken)), max(max_bytes, 1))
                taken += got
                max_bytes -= len(got) * stream.buffer.unit
                if len(taken) >= max_elements or max_bytes <= 0:
                    break
        return taken


class AheadStream(Stream):
    """One stream of a `ReadMany`: a bounded buffer between pool threads and the consumer.

    Its state is guarded by the owner's lock.

    Attributes:
        index: the number of its element.
        element: the argument to open it with; None once it is open.
        input: the stream to read; None until a thread opens it.
        buffer: items read and not consumed.
        ended: the input has no more elements.
        waiting: it has room and no thread.
        reading: a thread reads it.
        excluded: the consumer itself reads it.
        begun: the consumer has started to read it.
        closed: no more elements are needed.
    """

    def __init__(self, owner: ReadMany, index: int, element: Any, buffer: ChunkBuffer) -> None:
        self._owner = owner
        self.index = index
        self.element = element
        self.input: Stream | None = None
        self.buffer = buffer
        self.ended = False
        self.waiting = False
        self.reading = False
        self.excluded = False
        self.begun = False
        self.closed = False

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        self._owner.await_something(self)
        with self._owner.lock:
            return self.take(max_elements, max_bytes)

    def advance(self, n: int) -> int:
        self._owner.exclude(self)
        try:
            with self._owner.lock:
                passed = self.buffer.drop(n)
            if passed < n and not self.ended:
                passed += self._advance_input(n - passed)
                if passed < n:
                    self.ended = True
        finally:
            self._owner.admit(self)
        return passed

    def close(self) -> None:
        if self._owner.forget(self) and self.input is not None:
            self.input.close()

    def readable(self) -> bool:
        """True if more elements may be read."""
        return not (self.closed or self.ended or self.excluded) and self.buffer.room() > 0

    def wants_thread(self) -> bool:
        """True if enough elements may be read to justify waking a thread."""
        if self.waiting or self.reading:
            return False
        return self.readable() and self.buffer.half_empty()

    def take(self, max_elements: int, max_bytes: int) -> list[Any]:
        """Return the buffered elements up to the next failure; called with the lock held.

        Raises:
            BaseException: if the first item is a failure.
        """
        try:
            return self.buffer.take(max_elements, max_bytes)
        finally:
            self._owner.want(self)

    def _advance_input(self, n: int) -> int:
        try:
            source = self._owner.open_stream(self)
        except Exception:  # noqa: BLE001 - the position of an error
            self.ended = True
            return 1
        return source.advance(n)
