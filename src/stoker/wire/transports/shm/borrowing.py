"""The client's half: views of the blocks the worker lent, and the returns of freed ones."""

import threading
from collections import deque

from stoker.errors import WireError
from stoker.wire.transports import forking
from stoker.wire.transports.shm.envelope import Part, Return
from stoker.wire.transports.shm.mapping import Mapping, received_mapping

MAX_SEGMENTS = 1024
"""Maximum number of segments of a worker that a client maps."""


class Borrower:
    """Loans of a connection.

    Views may outlive the connection; the memory stays mapped until the last view is freed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mappings: dict[int, Mapping] = {}
        self._sizes: dict[int, int] = {}  # sizes by loan number
        self._leaked: set[int] = set()
        self._visible_at_fork: set[int] = set()
        # Views are freed by the garbage collector, perhaps in a thread that holds the lock; to
        # append to a deque is one step of the interpreter.
        self._freed: deque[int] = deque()
        forking.watch(self)

    @property
    def bytes(self) -> int:
        """Total size of the loans that still have views, in bytes."""
        with self._lock:
            freed = set(self._freed.copy())
            return sum(size for loan, size in self._sizes.items() if loan not in freed)

    def add(self, number: int, descriptor: int, size: int) -> None:
        """Map a segment the worker sent; own `descriptor`.

        Raises:
            WireError: if `descriptor` is not a sealed memfd of at least `size` bytes, or `number`
                is zero, known already or beyond `MAX_SEGMENTS` segments.
            OSError: if the segment cannot be mapped in this process.
        """
        mapping = received_mapping(descriptor, size)
        if not number or number in self._mappings or len(self._mappings) >= MAX_SEGMENTS:
            raise WireError(
                f"the worker announced segment {number}, which must be new, positive and one of at "
                f"most {MAX_SEGMENTS}; {len(self._mappings)} are mapped"
            )
        self._mappings[number] = mapping

    def forget(self, number: int) -> None:
        """Drop a segment that the worker retired; memory stays mapped until its views are freed.

        Raises:
            WireError: if the worker never announced segment `number`.
        """
        if self._mappings.pop(number, None) is None:
            raise WireError(f"the worker retired segment {number}, which it never announced")

    def view(self, part: Part) -> memoryview:
        """Return a view of a part of a body; the loan ends when all derived views are freed.

        Raises:
            WireError: if the part is not inside a known segment, or its loan number is in use.
        """
        mapping = self._mappings.get(part.segment)
        if mapping is None or part.offset + part.size > mapping.memory.nbytes or not part.size:
            raise WireError(
                f"the worker lent {part.size} bytes at offset {part.offset} of segment "
                f"{part.segment}, which "
                + ("is unknown" if mapping is None else f"has {mapping.memory.nbytes} bytes")
            )
        with self._lock:
            if part.loan in self._sizes:
                raise WireError(f"the worker used loan number {part.loan} twice")
            self._sizes[part.loan] = part.size
        return mapping.lend(part.offset, part.size, self._freed, part.loan)

    def returns(self, limit: int) -> tuple[Return, ...]:
        """Remove and return up to `limit` loans whose views were freed."""
        if not self._freed:  # most messages return no loan: spare the lock
            return ()
        found: list[Return] = []
        with self._lock:
            while self._freed and len(found) < limit:
                loan = self._freed.popleft()
                self._sizes.pop(loan, None)
                found.append(Return(loan, loan in self._leaked))
                self._leaked.discard(loan)
        return tuple(found)

    def close(self) -> None:
        """Unmap the segments that have no views. Idempotent."""
        self._mappings.clear()

    def before_fork(self) -> None:
        """Block borrowing and returning until after the fork."""
        self._lock.acquire()
        self._visible_at_fork = set(self._sizes).difference(self._freed.copy())

    def after_fork_in_parent(self) -> None:
        """Mark the loans visible at the fork as leaked: the child sees their memory too."""
        self._leaked |= self._visible_at_fork
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Release the lock; the views stay, on private memory, and no loans are returned."""
        self._lock.release()
