"""Allocation of ranges of a segment."""

from bisect import bisect_left


class Spans:
    """First-fit allocator of sub-ranges of ``range(size)``.

    The lowest range that fits is allocated: memory used before is resident, and perhaps in a cache.

    Args:
        size: of the whole range.

    Example:
        >>> spans = Spans(100)
        >>> spans.take(60), spans.take(60), spans.take(40)
        (0, None, 60)
        >>> spans.give(0, 60)
        >>> spans.take(10)
        0
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = [(0, size)]

    @property
    def free(self) -> int:
        """Total size of the free ranges."""
        return sum(stop - start for start, stop in self._free)

    def take(self, size: int) -> int | None:
        """Allocate a range of `size` and return its start; None if no free range fits."""
        # A fresh page of shared memory costs 4 to 18 us, so low ranges are used again first.
        for at, (start, stop) in enumerate(self._free):
            if stop - start >= size:
                if stop - start == size:
                    del self._free[at]
                else:
                    self._free[at] = (start + size, stop)
                return start
        return None

    def give(self, start: int, size: int) -> None:
        """Free the range of `size` at `start` that `take` allocated."""
        # Neighbours are joined: otherwise a segment ends in ranges too small for a frame.
        stop = start + size
        at = bisect_left(self._free, (start, stop))
        if at < len(self._free) and self._free[at][0] == stop:
            stop = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == start:
            start = self._free.pop(at - 1)[0]
            at -= 1
        self._free.insert(at, (start, stop))
