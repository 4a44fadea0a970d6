"""Memory that a worker process shares with the process that started it."""

import mmap
import os
import tempfile

from stoker.dataset.streams.calls.call_recorder import (
    RECORD_BYTES,
    CallRecorder,
    RecordedCall,
    read_calls,
)
from stoker.service.keys import KEY_BYTES, WorkerIdentity

_SLOT, _PROGRESS = 0, 1
_SLOTS = 2, 5
_STOPPING = 8
"""Positions of numbers of 8 bytes: the slot in use, the counter, two slots of id and key, and a
number that is not 0 once the worker stops."""

_CALLS = slice(128, 128 + RECORD_BYTES)


class SharedPage:
    """The worker's identity, a counter that shows that it runs, and the calls in flight.

    They are written by the child. Its parent reads them, even after the child's death.

    The parent creates the page and passes `descriptor` to the child, which opens it by number.

    Args:
        descriptor: of a page that `create` made in the parent; closed by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory: mmap.mmap | bytearray = mmap.mmap(descriptor, _CALLS.stop)
        # A store through this view is one machine instruction: a reader never sees half a number.
        self._numbers = memoryview(self._memory).cast("q")

    @classmethod
    def create(cls) -> "SharedPage":
        """Return a new page, filled with zeros."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("stoker-worker")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, _CALLS.stop)
        return cls(descriptor)

    @property
    def identity(self) -> WorkerIdentity | None:
        """The identity the dispatcher assigned last; ``None`` before the worker is registered."""
        while slot := self._numbers[_SLOT]:
            found = WorkerIdentity(self._numbers[slot], bytes(self._memory[_key_of(slot)]))
            # Else the child has published a newer identity while this one was read.
            if slot == self._numbers[_SLOT]:
                return found
        return None

    def publish(self, identity: WorkerIdentity) -> None:
        """Set `identity`; from one thread of the child only.

        It may die at any moment, so the slot in use is left as it is and another one is used then.
        """
        slot = next(each for each in _SLOTS if each != self._numbers[_SLOT])
        self._numbers[slot] = identity.worker_id
        self._memory[_key_of(slot)] = identity.key
        self._numbers[_SLOT] = slot

    @property
    def progress(self) -> int:
        """The number of calls of `move`."""
        return self._numbers[_PROGRESS]

    def move(self) -> None:
        """Increment `progress`; from one thread of the child only."""
        self._numbers[_PROGRESS] += 1

    def record_calls(self) -> CallRecorder:
        """Return what writes the calls of user functions in flight; for the child, once."""
        return CallRecorder(memoryview(self._memory)[_CALLS])

    @property
    def calls(self) -> list[RecordedCall]:
        """The calls in flight; none once the worker stops."""
        return [] if self._numbers[_STOPPING] else read_calls(bytes(self._memory[_CALLS]))

    def stop(self) -> None:
        """Remove the calls in flight: the process ends, and not by them."""
        self._numbers[_STOPPING] = 1

    def close(self) -> None:
        """Unmap the page and close the descriptor; the last identity and counter are kept."""
        # A copy, because another thread may read: the page is unmapped when no thread refers to it.
        self._memory = bytearray(self._memory)
        self._numbers = memoryview(self._memory).cast("q")
        self.stop()
        os.close(self.descriptor)


def _key_of(slot: int) -> slice:
    """Return the place of the key, after the id."""
    return slice(8 * slot + 8, 8 * slot + 8 + KEY_BYTES)
