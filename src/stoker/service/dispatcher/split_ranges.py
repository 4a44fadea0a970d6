"""A set of numbers as sorted ranges: a gap of millions of splits takes one entry."""

from bisect import bisect_right
from itertools import islice


class SplitRanges:
    """A set of split numbers.

    Example:
        >>> ranges = SplitRanges()
        >>> ranges.add(0, 10**9)
        >>> ranges.remove(1)
        >>> len(ranges), 0 in ranges, 1 in ranges, ranges.first(3)
        (999999999, True, False, [0, 2, 3])
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, split: int) -> bool:
        return self._position(split) is not None

    def add(self, start: int, stop: int) -> None:
        """Add all of ``[start, stop)``, none of which is in the set."""
        if start >= stop:
            return
        position = bisect_right(self._starts, start)
        self._count += stop - start
        joins_next = position < len(self._starts) and self._starts[position] == stop
        if joins_next:
            stop = self._stops[position]
        if position and self._stops[position - 1] == start:
            self._stops[position - 1] = stop
            if joins_next:
                del self._starts[position], self._stops[position]
        elif joins_next:
            self._starts[position] = start
        else:
            self._starts.insert(position, start)
            self._stops.insert(position, stop)

    def remove(self, split: int) -> None:
        """Remove a number.

        Raises:
            KeyError: if it is not in the set.
        """
        position = self._position(split)
        if position is None:
            raise KeyError(split)
        start, stop = self._starts[position], self._stops[position]
        rest = [part for part in ((start, split), (split + 1, stop)) if part[0] < part[1]]
        self._starts[position : position + 1] = [first for first, _ in rest]
        self._stops[position : position + 1] = [last for _, last in rest]
        self._count -= 1

    def first(self, count: int) -> list[int]:
        """Return the `count` smallest numbers, or all, in order."""
        numbers = (
            split
            for start, stop in zip(self._starts, self._stops, strict=True)
            for split in range(start, stop)
        )
        return list(islice(numbers, count))

    def _position(self, split: int) -> int | None:
        """Return the position of the range that contains a number."""
        position = bisect_right(self._starts, split) - 1
        return position if position >= 0 and split < self._stops[position] else None
