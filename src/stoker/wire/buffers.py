"""Memory that is reused when its last view is freed.

NumPy shortens chains of views: a slice of a slice refers to the array at the end of the chain, so
freeing an array in the middle says nothing about its views. The chain ends at an array whose base
is no array. So a private array over a plain buffer lives exactly as long as the last view. Objects
that take part in cyclic garbage collection, like ctypes arrays, do not: their weak references are
cleared while objects that are unreachable with them can still be resurrected.
"""

import threading
import weakref
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stoker.elements.codec.layout import ALIGNMENT, empty_body
from stoker.errors import WireError

Memory: TypeAlias = npt.NDArray[np.uint8]

# Smaller buffers come from malloc, which is as fast and has its own free lists.
POOLED_FROM_BYTES = 64 << 10

_size = itemgetter(0)

_STEPS = 8  # buffer sizes between a power of two and the next: at most 1/8 is unused

# The callback of a weak reference only runs while the reference itself exists.
_watched: dict[int, "weakref.ref[Memory]"] = {}


def lend(memory: Memory, on_freed: Callable[[], Any]) -> memoryview:
    """Return a view of `memory` and call `on_freed` when all views derived from it are freed.

    Args:
        memory: one-dimensional; the caller or `on_freed` keeps a reference to the memory.
        on_freed: called once, on the thread that frees the last view, maybe inside the garbage
            collector: the function must do no more than append to a deque.

    Example:
        >>> import numpy as np
        >>> over = []
        >>> array = np.frombuffer(lend(np.zeros(8, np.uint8), lambda: over.append(True)), np.uint8)
        >>> part = array[1:][2:4]
        >>> del array
        >>> over
        []
        >>> del part
        >>> over
        [True]
    """
    # A plain array owns lent memory: the collector clears weak references to ctypes objects before
    # finalizers run, which could resurrect a view of reused memory. (docs/decisions/026)
    owner = np.frombuffer(memory.data, np.uint8)
    reference = weakref.ref(owner, partial(_on_collected, on_freed))
    _watched[id(reference)] = reference
    return owner.data


def is_lent(base: object) -> bool:
    """Return whether `base`, the base of an array, is memory of `lend`."""
    owner = base.obj if isinstance(base, memoryview) else base
    return any(id(reference) in _watched for reference in weakref.getweakrefs(owner))


def _on_collected(on_freed: Callable[[], Any], reference: "weakref.ref[Memory]") -> None:
    _watched.pop(id(reference), None)
    on_freed()


# Receive memory is reused: frames of images cost the TCP client 54 us per image instead of 121.
# (docs/decisions/031)
class BufferPool:
    """Pool of private memory for received data, reused when the last view is freed.

    Fresh memory costs more than a copy into the memory: a page fault every 4 KiB.

    Args:
        max_bytes: maximum total size of the pool's buffers, lent and idle together. Beyond this
            size, and for small buffers, `take` returns ordinary memory.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._idle: list[tuple[int, int, Memory]] = []  # by size, then by order of return
        self._freed: deque[Memory] = deque()
        self._bytes = 0
        self._returns = 0

    def take(self, size: int) -> memoryview:
        """Return `size` bytes of aligned, uninitialized memory.

        Raises:
            WireError: if `size` bytes cannot be allocated.
        """
        rounded = _rounded(size)
        if not POOLED_FROM_BYTES <= size <= rounded <= self._max_bytes:
            return empty_body(size)
        with self._lock:
            self._collect()
            memory = self._find(rounded)
            # Memory is allocated after the lock is released: no thread waits for the system.
            if memory is None and not self._make_room(rounded):
                return empty_body(size)
        if memory is None:
            try:
                memory = np.frombuffer(empty_body(rounded), np.uint8)
            except WireError:  # the room that was reserved for this buffer is free again
                with self._lock:
                    self._bytes -= rounded
                raise
        return lend(memory[:size], partial(self._freed.append, memory))

    def statistics(self) -> dict[str, int]:
        """Return the total size of the buffers, and of the idle ones, in bytes."""
        with self._lock:
            self._collect()
            return {"bytes": self._bytes, "idle_bytes": sum(size for size, _, _ in self._idle)}

    def _collect(self) -> None:
        while self._freed:
            memory = self._freed.popleft()
            self._returns += 1
            insort(self._idle, (memory.nbytes, self._returns, memory))

    def _find(self, size: int) -> Memory | None:
        """Remove and return an idle buffer of `size` to ``2 * size``; the last used is cached."""
        at = bisect_left(self._idle, size, key=_size)
        if at == len(self._idle) or self._idle[at][0] >= 2 * size:
            return None
        # Of buffers of one size, the buffer returned last is most likely in the CPU's cache.
        last = bisect_right(self._idle, self._idle[at][0], key=_size) - 1
        return self._idle.pop(last)[2]

    def _make_room(self, size: int) -> bool:
        """Free idle buffers until `size` bytes fit; if so, reserve room and return True."""
        while self._bytes + size > self._max_bytes and self._idle:
            self._bytes -= self._idle.pop(0)[0]
        if self._bytes + size > self._max_bytes:
            return False
        self._bytes += size
        return True


def _rounded(size: int) -> int:
    step = max(ALIGNMENT, 1 << max(0, size.bit_length() - 1) >> _STEPS.bit_length() - 1)
    return -(-size // step) * step
