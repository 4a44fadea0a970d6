"""Record of the calls of user functions in flight, in memory that another process can read."""

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from stoker.dataset.streams.calls.call_ranges import NO_DIGEST, UNPLACED, CallRange

_SLOT = struct.Struct("=5q")
"""A call: stream, first, stop, digest, and the id of the task, not 0 while the call is valid."""

_DIGEST, _TASK = 3, 4

SLOTS = 4096
"""Most calls in flight: more than a process has threads that compute."""

RECORD_BYTES = SLOTS * _SLOT.size

QUIET_SECONDS = 10.0
"""Longest wait of a call that is to run alone: calls in flight may wait for this call."""

ALONE_SECONDS = 30.0
"""Longest wait of all calls for a call that runs alone, which may wait for these calls."""


class RecordedCall(NamedTuple):
    """Calls in flight; `digest` is that of the element of a call that was to run alone."""

    task_id: int
    calls: CallRange
    digest: int


def read_calls(memory: bytes) -> list[RecordedCall]:
    """Return the calls in flight by a copy of the memory of a `CallRecorder`."""
    return [
        RecordedCall(task_id, CallRange(stream, first, stop), digest)
        for stream, first, stop, digest, task_id in _SLOT.iter_unpack(memory)
        if task_id
    ]


class _Here(threading.local):
    has_slot: bool = False


class CallRecorder:
    """The calls of user functions in flight in this process; used from any thread.

    A call is in the memory before the function runs, and until the function has returned. The
    process may die between any two instructions.

    Args:
        memory: `RECORD_BYTES` bytes of zeros, which are written.

    Attributes:
        here: `has_slot` is to be set in threads that may begin a call before the `end` of another.
    """

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._numbers = memory.cast("q")
        # pop and append are atomic
        self._free = list(range(0, RECORD_BYTES, _SLOT.size))
        self.here = _Here()
        self._changed = threading.Condition()
        self._alone = 0
        """The thread that runs a call alone; 0 if none does."""

    def begin(self, task_id: int, stream: int, first: int, stop: int) -> int:
        """Record calls of this thread; return their slot for `end`.

        Wait while another thread runs a call alone.
        """
        while True:
            try:
                slot = self._free.pop()
            except IndexError:  # more threads than any process has had
                time.sleep(0.001)
                continue
            # After the pop: `begin_alone` sets its attribute first and looks at the slots then.
            if not self._alone or self._alone == threading.get_ident() or self.here.has_slot:
                _SLOT.pack_into(self._memory, slot, stream, first, stop, NO_DIGEST, task_id)
                return slot
            self._free.append(slot)
            with self._changed:
                self._changed.notify_all()  # the slot is free again
                self._wait_for_turn()

    def begin_unplaced(self, task_id: int) -> int:
        """Record user code that has no position; return its slot for `end`."""
        return self.begin(task_id, UNPLACED, 0, 1)

    def begin_alone(self, task_id: int, stream: int, index: int, digest: int) -> tuple[int, bool]:
        """Record a call and let all further calls wait until its `end`.

        Returns:
            Its slot, and whether the call runs alone: not if a call in flight does not end in time.
        """
        with self._changed:
            self._wait_for_turn()
            self._alone = threading.get_ident()
            alone = self._changed.wait_for(lambda: len(self._free) == SLOTS, QUIET_SECONDS)
            if not alone:
                self._alone = 0
                self._changed.notify_all()
        slot = self.begin(task_id, stream, index, index + 1)
        self._numbers[(slot >> 3) + _DIGEST] = digest
        return slot, alone

    def end(self, slot: int) -> None:
        """Remove the calls of a slot."""
        # One store of 8 bytes: a process that dies here leaves a whole call or none.
        self._numbers[(slot >> 3) + _TASK] = 0
        self._free.append(slot)
        if self._alone:
            with self._changed:
                if self._alone == threading.get_ident():
                    self._alone = 0
                self._changed.notify_all()

    @contextmanager
    def slot(self, slot: int) -> Iterator[None]:
        """End `slot` after the ``with`` block, which may begin calls of this thread."""
        before, self.here.has_slot = self.here.has_slot, True
        try:
            yield
        finally:
            self.here.has_slot = before
            self.end(slot)

    def _wait_for_turn(self) -> None:
        """Wait until no call of another thread runs alone; called with the lock held."""
        this = threading.get_ident()
        if not self._changed.wait_for(lambda: self._alone in (0, this), ALONE_SECONDS):
            self._alone = 0
