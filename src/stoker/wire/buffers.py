"""Memory that knows when its last view is gone, so that it can be used again.

NumPy shortens chains of views: a slice of a slice refers to the array at their end, so the death of
an array in between says nothing about its views. The end is where an array's base is no array: so
an array made over a plain buffer, which nobody else is given, lives exactly as long as any view.
And it dies with the last one, not before: objects that take part in cyclic garbage collection, as
ctypes arrays do, are declared dead while what is unreachable with them can still come back.
"""

import threading
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stoker.elements.codec.layout import ALIGNMENT, empty_body
from stoker.errors import WireError

Memory: TypeAlias = npt.NDArray[np.uint8]

POOLED_FROM_BYTES = 64 << 10
"""Smaller buffers come from malloc, which is as fast, and keeps them at hand itself."""

_STEPS = 8  # sizes of pooled buffers between a power of two and the next: at most 1/8 is unused

# Weak references die unheard unless somebody holds them.
_watched: dict[int, "weakref.ref[Memory]"] = {}


def lend(memory: Memory, on_dead: Callable[[], Any]) -> memoryview:
    """A view of `memory` that, with all that is made of it, is watched.

    Args:
        memory: one-dimensional; somebody else keeps it, or `on_dead` does.
        on_dead: called once, when the last view is gone; by whatever thread that happens on, inside
            the garbage collector perhaps: it may do no more than append to a deque.

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
    owner = np.frombuffer(memory.data, np.uint8)
    reference = weakref.ref(owner, partial(_ended, on_dead))
    _watched[id(reference)] = reference
    return owner.data


def _ended(on_dead: Callable[[], Any], reference: "weakref.ref[Memory]") -> None:
    _watched.pop(id(reference), None)
    on_dead()


class BufferPool:
    """Private memory for what is received, used again when its last view is gone.

    Fresh memory costs more than what is written to it: a page fault every 4 KiB.

    Args:
        max_bytes: of buffers it may have, lent and idle together. Beyond it, and for small ones,
            `take` gives ordinary memory.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._idle: list[tuple[int, int, Memory]] = []  # by size, then by when they came back
        self._dead: deque[Memory] = deque()
        self._bytes = 0
        self._returns = 0

    def take(self, size: int) -> memoryview:
        """`size` bytes of aligned memory, not zeroed: it is about to be written.

        Raises:
            WireError: there is not so much memory.
        """
        rounded = _rounded(size)
        if not POOLED_FROM_BYTES <= size <= rounded <= self._max_bytes:
            return empty_body(size)
        with self._lock:
            self._collect()
            memory = self._find(rounded)
            if memory is None and not self._make_room(rounded):
                return empty_body(size)
        if memory is None:
            try:
                memory = np.frombuffer(empty_body(rounded), np.uint8)
            except WireError:
                with self._lock:
                    self._bytes -= rounded
                raise
        return lend(memory[:size], partial(self._dead.append, memory))

    def statistics(self) -> dict[str, int]:
        """Bytes it has, and how many of them are idle."""
        with self._lock:
            self._collect()
            return {"bytes": self._bytes, "idle_bytes": sum(size for size, _, _ in self._idle)}

    def _collect(self) -> None:
        while self._dead:
            memory = self._dead.popleft()
            self._returns += 1
            entry = (memory.nbytes, self._returns, memory)
            self._idle.insert(bisect_left(self._idle, entry[:2], key=_order), entry)

    def _find(self, size: int) -> Memory | None:
        """An idle buffer of `size` or a little more; of equal ones the last used, still cached."""
        at = bisect_left(self._idle, (size, 0), key=_order)
        if at == len(self._idle) or self._idle[at][0] >= 2 * size:
            return None
        found = self._idle[at][0]
        last = bisect_left(self._idle, (found + 1, 0), key=_order) - 1
        return self._idle.pop(last)[2]

    def _make_room(self, size: int) -> bool:
        """Let go of idle buffers until there is room for `size` bytes; counts them if there is."""
        while self._bytes + size > self._max_bytes and self._idle:
            self._bytes -= self._idle.pop(0)[0]
        if self._bytes + size > self._max_bytes:
            return False
        self._bytes += size
        return True


def _order(entry: tuple[int, int, Memory]) -> tuple[int, int]:
    return entry[:2]


def _rounded(size: int) -> int:
    step = max(ALIGNMENT, 1 << max(0, size.bit_length() - 1) >> _STEPS.bit_length() - 1)
    return -(-size // step) * step
