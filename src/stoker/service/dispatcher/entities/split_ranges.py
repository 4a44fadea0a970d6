"""A set of numbers as sorted ranges: a gap of millions of splits takes one entry."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice

import msgspec


class _Count:
    _count: int


class SplitRanges(msgspec.Struct, _Count, array_like=True, dict=True, eq=False):
    """A set of split numbers.

    Attributes:
        starts: the starts of its ranges ``[start, stop)``, in order, none of which touch.
        stops: the stops of its ranges.

    Example:
        >>> ranges = SplitRanges.of([(0, 10**9)])
        >>> ranges.remove(1, 2)
        >>> len(ranges), 0 in ranges, 1 in ranges, ranges.first(3)
        (999999999, True, False, [0, 2, 3])
    """

    starts: list[int] = []
    stops: list[int] = []

    def __post_init__(self) -> None:
        self._count = sum(self.stops) - sum(self.starts)

    @classmethod
    def of(cls, ranges: list[tuple[int, int]]) -> "SplitRanges":
        """Return the set of the numbers in `ranges`, which are in order and do not touch."""
        return cls([start for start, _ in ranges], [stop for _, stop in ranges])

    def __len__(self) -> int:
        return self._count

    def __contains__(self, split: int) -> bool:
        position = bisect_right(self.starts, split) - 1
        return position >= 0 and split < self.stops[position]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The ranges ``[start, stop)``, in order."""
        return list(zip(self.starts, self.stops, strict=True))

    def is_disjoint(self, start: int, stop: int) -> bool:
        """Return whether none of ``[start, stop)`` is in the set."""
        position = bisect_right(self.starts, start)
        before = position == 0 or self.stops[position - 1] <= start
        return before and (position == len(self.starts) or stop <= self.starts[position])

    def add(self, start: int, stop: int) -> None:
        """Add all of ``[start, stop)``, none of which is in the set."""
        if start >= stop:
            return
        position = bisect_right(self.starts, start)
        self._count += stop - start
        # Ranges that touch become one: splits begun in order have a single range.
        joins_next = position < len(self.starts) and self.starts[position] == stop
        if joins_next:
            stop = self.stops[position]
        if position and self.stops[position - 1] == start:
            self.stops[position - 1] = stop
            if joins_next:
                del self.starts[position], self.stops[position]
        elif joins_next:
            self.starts[position] = start
        else:
            self.starts.insert(position, start)
            self.stops.insert(position, stop)

    def remove(self, start: int, stop: int) -> None:
        """Remove all of ``[start, stop)``, which is in the set.

        Raises:
            KeyError: if a part of it is not.
        """
        position = bisect_right(self.starts, start) - 1
        if position < 0 or stop > self.stops[position]:
            raise KeyError((start, stop))
        first, last = self.starts[position], self.stops[position]
        rest = [part for part in ((first, start), (stop, last)) if part[0] < part[1]]
        self.starts[position : position + 1] = [part[0] for part in rest]
        self.stops[position : position + 1] = [part[1] for part in rest]
        self._count -= stop - start

    def first(self, count: int) -> list[int]:
        """Return the `count` smallest numbers, or all, in order."""
        # Not a list of all: an infinite source has 2^52 splits.
        ranges = zip(self.starts, self.stops, strict=True)
        return list(islice((split for each in ranges for split in range(*each)), count))

    def missing(self, total: int) -> list[tuple[int, int]]:
        """Return the ranges of ``[0, total)`` that are not in the set, in order."""
        bounds = zip([0, *self.stops], [*self.starts, total], strict=True)
        return [(start, stop) for start, stop in bounds if start < stop]


def to_ranges(splits: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers, which differ, as ranges ``[start, stop)`` in order.

    Example:
        >>> to_ranges([7, 1, 2])
        [(1, 3), (7, 8)]
    """
    ranges: list[tuple[int, int]] = []
    for split in sorted(splits):
        if ranges and ranges[-1][1] == split:
            ranges[-1] = ranges[-1][0], split + 1
        else:
            ranges.append((split, split + 1))
    return ranges
