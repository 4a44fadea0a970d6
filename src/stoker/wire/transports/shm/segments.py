"""The memory a worker process shares: a pool of segments, and the blocks that are used of them.

A block is free again when the worker has no view of it and no client either. What a client never
gave back, because it was gone or had forked, is not used again: somebody may still see it. Segments
full of such memory are replaced when there is no other room.
"""

import logging
import math
import threading
from bisect import bisect_right, insort
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.elements.codec.columns import LARGE_BYTES
from stoker.wire.buffers import lend
from stoker.wire.transports.shm import forking
from stoker.wire.transports.shm.mapping import Mapping, Memory, new_mapping
from stoker.wire.transports.shm.spans import Spans

_log = logging.getLogger(__name__)

SEGMENT_BYTES = 64 << 20
"""Segments are so large, or a quarter of the pool; memory is taken only for what is used of it."""

PAGE = 4096


class Segment:
    """One mapped memfd of the pool.

    Attributes:
        number: its name on the wire.
        retired: bytes of it that are never used again.
        closing: whether no more of it is used, so that it can be dropped.
    """

    def __init__(self, number: int, mapping: Mapping) -> None:
        self.number = number
        self.mapping = mapping
        self.spans = Spans(mapping.memory.nbytes)
        self.starts: list[int] = []
        self.blocks: dict[int, Block] = {}
        self.retired = 0
        self.closing = False


class Block:
    """A part of a segment, in use.

    Attributes:
        viewed: whether the worker itself has views of it.
        lent: to whom it is.
        spent: whether it was ever lent: it may have been written to since.
        seen: whether somebody else may still see it when all have given it back.
    """

    __slots__ = ("lent", "seen", "segment", "size", "spent", "start", "viewed")

    def __init__(self, segment: Segment, start: int, size: int) -> None:
        self.segment = segment
        self.start = start
        self.size = size
        self.viewed = False
        self.lent: Loans | None = None
        self.spent = False
        self.seen = False

    @property
    def memory(self) -> Memory:
        """All of it."""
        return self.segment.mapping.memory[self.start : self.start + self.size]


class Loans:
    """What one client has: its blocks by loan number, which are never used twice."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.bytes = 0
        self.last = 0
        self.over = False


class Segments:
    """A pool of shared memory for elements on their way to clients of this host.

    Args:
        max_bytes: of segments it may have at once.

    Attributes:
        clients: how many can see it: while there is none, ordinary memory is as good.
    """

    def __init__(self, max_bytes: int) -> None:
        self.clients = 0
        self._max_bytes = max_bytes // PAGE * PAGE
        self._segment_bytes = min(SEGMENT_BYTES, self._max_bytes // 4 // PAGE * PAGE)
        self._lock = threading.Lock()
        self._segments: dict[int, Segment] = {}
        self._dead: deque[tuple[int, int]] = deque()  # segment and start of a block
        self._last_number = 0
        self._viewed_bytes = 0
        self._lent_bytes = 0
        self._refused = 0
        self._closed = False
        self._warned = False
        forking.watch(self)

    # For those who compute elements.

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array to compute into, not zeroed; it travels without being copied.

        Ordinary memory where it is small, holds objects, or too much is in use: at most half of the
        pool is given out so, for the other half is needed to carry what was computed elsewhere.
        """
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        with self._lock:
            self._collect()
            block = None
            if self._viewed_bytes + size <= self._max_bytes // 2:
                block = self._take(size)
            if block is not None:
                block.viewed = True
                self._viewed_bytes += block.size
        if block is None:
            return np.empty(shape, dtype)
        segment = block.segment
        # The mapping is needed as long as the view: for the child of a fork.
        on_dead = partial(_gone, self._dead, (segment.number, block.start), segment.mapping)
        return np.ndarray(shape, dtype, lend(block.memory[:size], on_dead))

    def statistics(self) -> dict[str, int]:
        """How its memory is used, in bytes.

        ``max_bytes`` it may have, ``bytes`` it has; of these ``viewed_bytes`` are computed into or
        kept by the worker, ``lent_bytes`` are with clients (the same ones, perhaps), and
        ``retired_bytes`` are never used again. ``refused`` counts how often there was no room:
        much of it says that clients keep what they got, or that `max_bytes` is small.
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
        """Let go of all memory; what clients and arrays still see stays until they do. Idempotent.

        From here on `allocate` gives ordinary memory.
        """
        with self._lock:
            self._drop_all()

    # For the connections.

    @property
    def viewed(self) -> bool:
        """Whether any array may lie in it."""
        return self._viewed_bytes > 0

    @property
    def numbers(self) -> set[int]:
        """The segments there are."""
        with self._lock:
            return set(self._segments)

    def lend_copy(self, loans: Loans, size: int) -> tuple[int, Block] | None:
        """Lends a block of `size` bytes for the sender to write to; None if there is no room."""
        with self._lock:
            self._collect()
            if not self._may_lend(loans, size):
                return None
            block = self._take(size)
            return None if block is None else (self._lend(loans, block), block)

    def lend_in_place(self, loans: Loans, address: int, size: int) -> tuple[int, Block] | None:
        """Lends the block that holds `size` bytes at `address` of this process.

        None if it is not in a block, or may not be lent: only the first who gets it may write to it
        in place.
        """
        with self._lock:
            block = self._find(address, size)
            if block is None or block.spent or not self._may_lend(loans, block.size):
                return None
            return self._lend(loans, block), block

    def given_back(self, loans: Loans, number: int, *, seen: bool) -> bool:
        """A client has no more views of a loan; but somebody else has, if `seen`.

        Returns:
            Whether there was such a loan.
        """
        with self._lock:
            block = loans.blocks.pop(number, None)
            if block is None:
                return False
            self._unlend(loans, block, seen=seen)
            return True

    def ended(self, loans: Loans) -> None:
        """The connection is over: what it has not given back is not used again. Idempotent."""
        with self._lock:
            self.clients -= not loans.over
            loans.over = True
            while loans.blocks:
                _, block = loans.blocks.popitem()
                self._unlend(loans, block, seen=True)

    def client_came(self) -> None:
        """One more client can see the pool."""
        with self._lock:
            self.clients += 1

    def _may_lend(self, loans: Loans, size: int) -> bool:
        # A client that keeps all it gets leaves half of the pool to the others.
        return not loans.over and loans.bytes + size <= self._max_bytes // 2

    def _lend(self, loans: Loans, block: Block) -> int:
        loans.last += 1
        loans.blocks[loans.last] = block
        loans.bytes += block.size
        self._lent_bytes += block.size
        block.lent, block.spent = loans, True
        return loans.last

    def _unlend(self, loans: Loans, block: Block, *, seen: bool) -> None:
        loans.bytes -= block.size
        self._lent_bytes -= block.size
        block.lent = None
        block.seen = block.seen or seen
        self._free_unused(block)

    # Room, all of it with the lock held. The collector may run anything here except what takes this
    # lock: views that die are only queued.

    def _collect(self) -> None:
        while self._dead:
            number, start = self._dead.popleft()
            segment = self._segments.get(number)
            if segment is not None:
                block = segment.blocks[start]
                block.viewed = False
                self._viewed_bytes -= block.size
                self._free_unused(block)

    def _free_unused(self, block: Block) -> None:
        if block.viewed or block.lent is not None:
            return
        segment = block.segment
        if segment.blocks.pop(block.start, None) is None:
            return  # The pool was closed.
        segment.starts.remove(block.start)
        if block.seen:
            segment.retired += block.size
        else:
            segment.spans.give(block.start, block.size)

    def _take(self, size: int) -> Block | None:
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

    def _new_block(self, segment: Segment, start: int, size: int) -> Block:
        block = Block(segment, start, size)
        segment.blocks[start] = block
        insort(segment.starts, start)
        return block

    def _drop_unused(self, size: int) -> None:
        """Drop segments that are of no more use, as far as there is no room for one of `size`."""
        for segment in list(self._segments.values()):
            if self._room() >= size:
                return
            if not segment.blocks:
                # Nothing of it is in use, and what is free did not do.
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

    def _find(self, address: int, size: int) -> Block | None:
        for segment in self._segments.values():
            offset = address - segment.mapping.address
            if 0 <= offset < segment.spans.size:
                at = bisect_right(segment.starts, offset) - 1
                if at < 0:
                    return None
                block = segment.blocks[segment.starts[at]]
                inside = offset + size <= block.start + block.size
                return block if inside and block.viewed else None
        return None

    # A child of this process sees what is viewed here at the fork, and has no part in the pool.

    def before_fork(self) -> None:
        """Holds still: nothing is lent, freed or used again."""
        self._lock.acquire()
        self._collect()

    def after_fork_in_parent(self) -> None:
        """What is viewed now is never used again: the child may look at it."""
        for segment in self._segments.values():
            for block in segment.blocks.values():
                block.seen = block.seen or block.viewed
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Only ordinary memory is given out."""
        self._drop_all()
        self._lock.release()


def _gone(dead: "deque[tuple[int, int]]", place: tuple[int, int], _mapping: Mapping) -> None:
    dead.append(place)
