"""A thread that reads a stream ahead of its consumer: what prefetch and parallel map stand on."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.stream import Stream

# The most bytes asked of the input at once.
CHUNK_BYTES = 1 << 20

# Idle threads end at once; the limit only matters if an interpreter at exit runs no more threads.
_JOIN_SECONDS = 1.0

_numbers = itertools.count()


class ReadAhead:
    """Reads `stream` on a daemon thread while its owner has room.

    One lock guards the owner's buffer and this reader. The owner's `room` (how many elements it
    would take now) and `accept` (take these; a failed position is a `Failure`) are called with the
    lock held.

    Attributes:
        lock: the lock; re-entrant, since a collected iterator may be closed anywhere.
        filled: notified when elements came, the stream ended or the reader was closed.
        ended: the stream has no more.
        closed: `close` was called.
        reading: the thread is inside the stream.
    """

    def __init__(
        self, stream: Stream, room: Callable[[], int], accept: Callable[[list[Any]], None]
    ) -> None:
        self._stream = stream
        self._room = room
        self._accept = accept
        self.lock = threading.RLock()
        self.filled = threading.Condition(self.lock)
        self._wake = threading.Condition(self.lock)
        self.ended = False
        self.closed = False
        self._paused = False
        self.reading = False
        self._close_stream = True
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read; the first time only."""
        if self._thread is None:
            name = f"stoker-reader-{next(_numbers)}"
            self._thread = threading.Thread(target=self._read, name=name, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Tell the reader that there may be room; with the lock held."""
        self._wake.notify()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it the reader rests and the stream is the caller's to use.

        Entering waits for the read in progress, whose elements are accepted.
        """
        with self.lock:
            self._paused = True
            while self.reading:
                self.filled.wait()
        try:
            yield
        finally:
            with self.lock:
                self._paused = False
                self._wake.notify()

    def close(self, *, close_stream: bool = True) -> None:
        """End the thread and close the stream; idempotent, from any thread.

        A read in progress may be a user's function that runs for hours: it is not waited for. Then
        the thread itself closes the stream, when the read returns.
        """
        if self._pid != os.getpid():  # forked: the thread is not here, and the lock may be held
            return
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self._close_stream = close_stream
            self._wake.notify_all()
            self.filled.notify_all()
            busy = self.reading
        if busy:
            return
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        if close_stream:
            self._stream.close()

    def _read(self) -> None:
        while (room := self._await_room()) > 0:
            try:
                items = self._stream.next_chunk(room, CHUNK_BYTES)
            except BaseException as error:  # noqa: BLE001 - raised where the consumer reads it
                items = [Failure(error)]
            with self.lock:
                self.reading = False
                if self.closed:
                    break
                if items:
                    self._accept(items)
                else:
                    self.ended = True
                    self._accept([])
                self.filled.notify_all()
                del items  # while it waits for room the thread keeps nothing alive
        else:
            return
        if self._close_stream:
            self._stream.close()

    def _await_room(self) -> int:
        """How many to read next, or 0 when the thread is to end."""
        with self.lock:
            while not self.closed and not self.ended:
                room = 0 if self._paused else self._room()
                if room > 0:
                    self.reading = True
                    return room
                self._wake.wait()
            return 0
