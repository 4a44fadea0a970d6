"""A thread that reads a stream ahead of its consumer, for prefetch and parallel map."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.measure.sampling import Section
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.errors import FailedPreconditionError

# The most bytes requested from the input per call.
CHUNK_BYTES = 1 << 20

# Idle threads end immediately; the limit matters if the interpreter at exit runs no threads.
_JOIN_SECONDS = 1.0

_numbers = itertools.count()


class ReadAhead:
    """Reads `stream` on a daemon thread while its owner has room.

    A common lock guards the owner's buffer and this reader. The owner's `room` (the number of
    elements that fit now) and `accept` (add these items; a failed position is a `Failure`) are
    called with the lock held.

    Args:
        stream: read on the thread.
        room: of the owner.
        accept: of the owner.
        work: counts the time in which the thread waits for room.

    Attributes:
        lock: the lock; re-entrant, since a collected iterator may be closed anywhere.
        arrived: notified when elements arrived, the stream ended or the reader was closed.
        ended: the stream has no more elements.
        closed: `close` was called.
        reading: the thread is inside the stream.
    """

    def __init__(
        self,
        stream: Stream,
        room: Callable[[], int],
        accept: Callable[[list[Any]], None],
        work: Work,
    ) -> None:
        self._stream = stream
        self._room = room
        self._accept = accept
        self._work = work
        self.lock = threading.RLock()
        self.arrived = threading.Condition(self.lock)
        self._wake = threading.Condition(self.lock)
        self.ended = False
        self.closed = False
        self._paused = False
        self.reading = False
        self._close_stream = True
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; later calls have no effect."""
        if self._thread is None:
            name = f"stoker-reader-{next(_numbers)}"
            thread = threading.Thread(target=self._read, name=name, daemon=True)
            thread.start()
            self._thread = thread  # `close`, from another thread, joins only a thread that runs

    def wake(self) -> None:
        """Notify the reader that there may be room; called with the lock held."""
        self._wake.notify()

    def check_open(self) -> None:
        """Raise FailedPreconditionError if this is closed; called with the lock held."""
        if self.closed:
            raise FailedPreconditionError("this iterator was closed while it was read")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context manager that pauses the reader; the caller may read the stream.

        The read in progress ends first, and its elements are accepted.
        """
        with self.lock:
            self._paused = True
            self._work.put_wait.run(0)
            while self.reading:
                self.arrived.wait()
        try:
            yield
        finally:
            with self.lock:
                self._paused = False
                self._wake.notify()

    def close(self, *, close_stream: bool = True) -> None:
        """End the thread and close the stream; idempotent, from any thread.

        A read in progress is not waited for, since a user function may run for hours. The thread
        closes the stream when the read returns.
        """
        if self._pid != os.getpid():  # forked: there is no thread, and the lock may be locked
            return
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self._close_stream = close_stream
            self._work.put_wait.run(0)
            self._wake.notify_all()
            self.arrived.notify_all()
            busy = self.reading
        if busy:
            return
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        if close_stream:
            self._stream.close()

    def _read(self) -> None:
        section = Section()
        while (room := self._await_room()) > 0:
            try:
                items = section.read(self._stream, room, CHUNK_BYTES)
            except BaseException as error:  # noqa: BLE001 - raised at its position
                items = [Failure(error)]
            with self.lock:
                self.reading = False
                if self.closed:
                    break
                self.ended = not items
                self._accept(items)
                self.arrived.notify_all()
                del items  # the thread must keep nothing alive while waiting
        else:
            return
        if self._close_stream:
            self._stream.close()

    def _await_room(self) -> int:
        """Return the number of elements to read next, or 0 to end the thread."""
        with self.lock:
            while not self.closed and not self.ended:
                room = 0 if self._paused else self._room()
                self._work.put_wait.run(0 if self._paused or room > 0 else 1)
                if room > 0:
                    self.reading = True
                    return room
                self._wake.wait()
            return 0
