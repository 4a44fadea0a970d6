"""One page of memory that a worker process shares with the process that started it."""

import mmap
import os
import tempfile


class SharedPage:
    """The worker's id and a counter that shows that it runs, written by the child.

    Its parent reads them, even after the child's death.

    The parent creates the page and passes `descriptor` to the child, which opens it by number.

    Args:
        descriptor: of a page that `create` made in the parent; closed by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        # A store through this view is one machine instruction: a reader never sees half an id.
        self._numbers = memoryview(self._memory).cast("q")
        self._last = (0, 0)

    @classmethod
    def create(cls) -> "SharedPage":
        """Return a new page, filled with zeros."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("stoker-worker")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return cls(descriptor)

    @property
    def worker_id(self) -> int | None:
        """The id the dispatcher assigned last; ``None`` before the worker is registered."""
        return self._number(0) or None

    @worker_id.setter
    def worker_id(self, worker_id: int) -> None:
        self._numbers[0] = worker_id

    @property
    def progress(self) -> int:
        """The number of calls of `move`."""
        return self._number(1)

    def move(self) -> None:
        """Increment `progress`; from one thread of the child only."""
        self._numbers[1] += 1

    def _number(self, index: int) -> int:
        try:
            return self._numbers[index]
        except ValueError:  # closed
            return self._last[index]

    def close(self) -> None:
        """Unmap the page and close the descriptor."""
        self._last = self._numbers[0], self._numbers[1]
        self._numbers.release()
        self._memory.close()
        os.close(self.descriptor)
