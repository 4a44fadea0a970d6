"""The shared memory of a worker process: a pool of segments, divided into blocks.

A block is free again when neither the worker nor a client has a view of the block. Blocks that a
client never returned, because the client disconnected or forked, are retired: a process may still
see their memory. Segments full of retired blocks are replaced when the pool has no room left.
"""

import logging
import math
import threading
from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stoker.elements.codec.columns import LARGE_BYTES
from stoker.wire.transports import forking
from stoker.wire.transports.shm.mapping import Mapping, Memory, new_mapping
from stoker.wire.transports.shm.spans import Spans

_log = logging.getLogger(__name__)

# A segment is a memfd of 64 MiB, and frames are blocks of the segment: a memfd per frame would cost
# both sides two descriptors per frame. (docs/decisions/027)
SEGMENT_BYTES = 64 << 20
"""Usual size of a segment, at most a quarter of the pool; unused pages take no memory."""

PAGE = 4096


class Segment:
    """A mapped memfd of the pool.

    Attributes:
        number: identifies the segment on the wire.
        retired: bytes of the segment that are never reused.
        closing: no blocks are allocated from the segment any more, so that it can be dropped.
    """

    def __init__(self, number: int, mapping: Mapping) -> None:
        self.number = number
        self.mapping = mapping
        self.spans = Spans(mapping.memory.nbytes)
        self.starts: list[int] = []
        self.blocks: dict[int, SharedBlock] = {}
        self.retired = 0
        self.closing = False


@dataclass(slots=True, eq=False)
class SharedBlock:
    """An allocated range of a segment.

    Attributes:
        has_local_views: the worker itself has views of the block.
        borrower: the loans of the client to which the block is lent.
        was_lent: the block was lent at least once, so a client may have written to its memory.
        leaked: an unknown process may still see the block after all loans ended.
    """

    segment: Segment
    start: int
    size: int
    has_local_views: bool = False
    borrower: "Loans | None" = None
    was_lent: bool = False
    leaked: bool = False

    @property
    def memory(self) -> Memory:
        """The bytes of the block."""
        return self.segment.mapping.memory[self.start : self.start + self.size]


Loan: TypeAlias = tuple[int, SharedBlock]
"""Number of a loan, and its block."""


class Loans:
    """Blocks lent to a client, by loan number; numbers are never reused."""

    def __init__(self) -> None:
        self.blocks: dict[int, SharedBlock] = {}
        self.bytes = 0
        self.last_number = 0
        self.ended = False


class Segments:
    """Pool of shared memory for elements sent to clients of this host.

    Args:
        max_bytes: maximum total size of its segments.

    Attributes:
        clients: number of connected clients; with none, ordinary memory is as good.
    """

    def __init__(self, max_bytes: int) -> None:
        self.clients = 0
        self._max_bytes = max_bytes // PAGE * PAGE
        self._segment_bytes = min(SEGMENT_BYTES, self._max_bytes // 4 // PAGE * PAGE)
        self._lock = threading.Lock()
        self._segments: dict[int, Segment] = {}
        self._freed: deque[tuple[int, int]] = deque()  # segment and start of a block
        self._last_number = 0
        self._viewed_bytes = 0
        self._lent_bytes = 0
        self._refused = 0
        self._closed = False
        self._warned = False
        forking.watch(self)

    # For code that computes elements.

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an uninitialized array that is sent without being copied.

        The array is in ordinary memory if small, if its items are objects, or if the pool is full:
        at most half of the pool is allocated here; the second half carries elements computed
        elsewhere.
        """
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        with self._lock:
            self._collect()
            block = None
            if self._viewed_bytes + size <= self._max_bytes // 2:
                block = self._allocate_block(size)
            if block is not None:
                block.has_local_views = True
                self._viewed_bytes += block.size
        if block is None:
            return np.empty(shape, dtype)
        segment = block.segment
        place = (segment.number, block.start)
        return np.ndarray(shape, dtype, segment.mapping.lend(block.start, size, self._freed, place))

    def statistics(self) -> dict[str, int]:
        """Return the memory usage, in bytes.

        ``max_bytes`` is the limit and ``bytes`` the size of the segments. Of these ``viewed_bytes``
        have views in the worker, ``lent_bytes`` are lent to clients (the two may overlap), and
        ``retired_bytes`` are never reused. ``refused`` counts the allocations that found no room,
        and the loans beyond a client's share: a high count means that clients keep their elements,
        or that `max_bytes` is small.
        """
        with self._lock:
            self._collect()
            segments = self._segments.values()
            return {
                "max_bytes": self._max_bytes,
                "bytes": sum(segment.spans.size for segment in segments),
                "viewed_bytes": self._viewed_bytes,
                "lent_bytes": self._lent_bytes,
                "retired_bytes": sum(segment.retired for segment in segments),
                "refused": self._refused,
            }

    def close(self) -> None:
        """Release all memory; memory stays mapped until its views are freed. Idempotent.

        Afterwards `allocate` returns arrays in ordinary memory.
        """
        with self._lock:
            self._drop_all()

    def release_unused(self) -> None:
        """Return the memory of segments that nobody uses, if no client is connected."""
        with self._lock:
            self._collect()
            if not self.clients:
                for segment in list(self._segments.values()):
                    if not segment.blocks:
                        del self._segments[segment.number]

    # For the connections.

    @property
    def has_local_views(self) -> bool:
        """True if the worker has views of any block."""
        return self._viewed_bytes > 0

    @property
    def numbers(self) -> set[int]:
        """Numbers of the current segments."""
        with self._lock:
            return set(self._segments)

    def lend_copy(self, loans: Loans, size: int) -> Loan | None:
        """Lend a new block of `size` bytes for the sender to write to; None if there is no room."""
        with self._lock:
            self._collect()
            if not self._may_lend(loans, size):
                self._refused += not loans.ended
                return None
            block = self._allocate_block(size)
            return None if block is None else (self._lend(loans, block), block)

    def lend_in_place(self, loans: Loans, address: int, size: int) -> Loan | None:
        """Lend the block that contains the `size` bytes at `address` of this process.

        None if no block contains these bytes, the client may borrow no more, or the block was lent
        before: only the first borrower may write in place.
        """
        with self._lock:
            block = self._find(address, size)
            if block is None or block.was_lent or not self._may_lend(loans, block.size):
                return None
            return self._lend(loans, block), block

    def return_loan(self, loans: Loans, number: int, *, leaked: bool) -> bool:
        """End a loan of which the client has no more views; another process has, if `leaked`.

        Returns:
            False if there is no loan `number`.
        """
        with self._lock:
            block = loans.blocks.pop(number, None)
            if block is None:
                return False
            self._end_loan(loans, block, leaked=leaked)
            return True

    def remove_client(self, loans: Loans) -> None:
        """End all `loans` of a closed connection; their blocks are retired. Idempotent."""
        with self._lock:
            self.clients -= not loans.ended
            loans.ended = True
            while loans.blocks:
                _, block = loans.blocks.popitem()
                self._end_loan(loans, block, leaked=True)

    def add_client(self) -> None:
        """Count a new client."""
        with self._lock:
            self.clients += 1

    def _may_lend(self, loans: Loans, size: int) -> bool:
        # A client that keeps all its elements leaves half of the pool to the remaining clients.
        return not loans.ended and loans.bytes + size <= self._max_bytes // 2

    def _lend(self, loans: Loans, block: SharedBlock) -> int:
        loans.last_number += 1
        loans.blocks[loans.last_number] = block
        loans.bytes += block.size
        self._lent_bytes += block.size
        block.borrower, block.was_lent = loans, True
        return loans.last_number

    def _end_loan(self, loans: Loans, block: SharedBlock, *, leaked: bool) -> None:
        loans.bytes -= block.size
        self._lent_bytes -= block.size
        block.borrower = None
        block.leaked = block.leaked or leaked
        self._free_unused(block)

    # Allocation; the caller holds the lock. The garbage collector may free views during these
    # methods, so freeing a view only appends to a deque.

    def _collect(self) -> None:
        while self._freed:
            number, start = self._freed.popleft()
            segment = self._segments.get(number)
            if segment is not None:
                block = segment.blocks[start]
                block.has_local_views = False
                self._viewed_bytes -= block.size
                self._free_unused(block)

    def _free_unused(self, block: SharedBlock) -> None:
        if block.has_local_views or block.borrower is not None:
            return
        segment = block.segment
        if segment.blocks.pop(block.start, None) is None:
            return  # The pool was closed.
        segment.starts.remove(block.start)
        if block.leaked:
            segment.retired += block.size
        else:
            segment.spans.give(block.start, block.size)

    def _allocate_block(self, size: int) -> SharedBlock | None:
        size = -(-size // PAGE) * PAGE
        if self._closed or size > self._max_bytes:
            return None
        for segment in self._segments.values():
            if not segment.closing and (start := segment.spans.take(size)) is not None:
                return self._new_block(segment, start, size)
        self._drop_unused(size)
        new = self._new_segment(size)
        if new is not None:
            start = new.spans.take(size)
            assert start is not None
            return self._new_block(new, start, size)
        self._refused += 1
        return None

    def _new_block(self, segment: Segment, start: int, size: int) -> SharedBlock:
        block = SharedBlock(segment, start, size)
        segment.blocks[start] = block
        insort(segment.starts, start)
        return block

    def _drop_unused(self, size: int) -> None:
        """Drop unused segments until there is room for a segment of `size` bytes."""
        for segment in list(self._segments.values()):
            if self._room() >= size:
                return
            if not segment.blocks:
                # No block is in use, and its free ranges are too small.
                del self._segments[segment.number]
        segments = self._segments.values()
        if self._room() < size and not any(segment.closing for segment in segments):
            worst = max(segments, key=lambda segment: segment.retired, default=None)
            if worst is not None and worst.retired >= worst.spans.size // 4:
                worst.closing = True

    def _room(self) -> int:
        return self._max_bytes - sum(segment.spans.size for segment in self._segments.values())

    def _new_segment(self, size: int) -> Segment | None:
        room = self._room()
        if size > room:
            return None
        try:
            mapping = new_mapping(max(size, min(self._segment_bytes, room)))
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning("no shared memory for elements, which are copied instead: %s", error)
            return None
        self._last_number += 1
        segment = self._segments[self._last_number] = Segment(self._last_number, mapping)
        return segment

    def _drop_all(self) -> None:
        self._closed = True
        for segment in self._segments.values():
            segment.blocks.clear()
        self._segments.clear()
        self._viewed_bytes = 0

    def _find(self, address: int, size: int) -> SharedBlock | None:
        for segment in self._segments.values():
            offset = address - segment.mapping.address
            if 0 <= offset < segment.spans.size:
                at = bisect_right(segment.starts, offset) - 1
                if at < 0:
                    return None
                block = segment.blocks[segment.starts[at]]
                inside = offset + size <= block.start + block.size
                return block if inside and block.has_local_views else None
        return None

    # A forked child sees the blocks that have views at the fork, and does not use the pool.

    def before_fork(self) -> None:
        """SharedBlock lending and freeing until after the fork."""
        self._lock.acquire()
        self._collect()

    def after_fork_in_parent(self) -> None:
        """Mark the blocks that have views as leaked: the child may see their memory."""
        for segment in self._segments.values():
            for block in segment.blocks.values():
                block.leaked = block.leaked or block.has_local_views
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Drop the pool; `allocate` returns ordinary memory in the child."""
        self._drop_all()
        self._lock.release()
