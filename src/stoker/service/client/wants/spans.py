"""A set of numbers as sorted ranges; changes return the part that was changed."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
"""Numbers from the first to before the second."""


class Spans:
    """A set of numbers, in few ranges.

    Attributes:
        count: the number of numbers.

    Example:
        >>> spans = Spans()
        >>> spans.add(0, 10), spans.add(5, 12), spans.remove(2, 4)
        ([(0, 10)], [(10, 12)], [(2, 4)])
        >>> list(spans), spans.count, spans.gap(0, 99), spans.gap(6, 99)
        ([(0, 2), (4, 12)], 10, (2, 4), (12, 99))
    """

    def __init__(self) -> None:
        self.count = 0
        self._starts: list[int] = []
        self._stops: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __iter__(self) -> Iterator[Span]:
        return iter(list(zip(self._starts, self._stops, strict=True)))

    def __contains__(self, number: int) -> bool:
        before = bisect_right(self._starts, number) - 1
        return before >= 0 and number < self._stops[before]

    @property
    def stop(self) -> int:
        """The number after the largest one; 0 of an empty set."""
        return self._stops[-1] if self._stops else 0

    def add(self, start: int, stop: int) -> list[Span]:
        """Add the numbers from `start` to `stop`; return those that are new, in order."""
        starts, stops = self._starts, self._stops
        first = bisect_left(stops, start)
        last = bisect_right(starts, stop, first)
        if first == last:
            starts.insert(first, start)
            stops.insert(first, stop)
            self.count += stop - start
            return [(start, stop)]
        # Those that touch become one, so that numbers added in order have a single range.
        new, at = [], start
        for known in range(first, last):
            if starts[known] > at:
                new.append((at, starts[known]))
            at = max(at, stops[known])
        if at < stop:
            new.append((at, stop))
        starts[first:last] = [min(start, starts[first])]
        stops[first:last] = [max(stop, stops[last - 1])]
        self.count += sum(end - begin for begin, end in new)
        return new

    def remove(self, start: int, stop: int) -> list[Span]:
        """Remove the numbers from `start` to `stop`; return those that were there, in order."""
        starts, stops = self._starts, self._stops
        first = bisect_right(stops, start)
        last = bisect_left(starts, stop, first)
        if first == last:
            return []
        removed = [
            (max(start, starts[known]), min(stop, stops[known])) for known in range(first, last)
        ]
        ends = ((starts[first], start), (stop, stops[last - 1]))
        rest = [(begin, end) for begin, end in ends if begin < end]
        starts[first:last] = [begin for begin, _ in rest]
        stops[first:last] = [end for _, end in rest]
        self.count -= sum(end - begin for begin, end in removed)
        return removed

    def gap(self, start: int, stop: int) -> Span:
        """Return the first range of numbers between `start` and `stop` that is not in the set.

        Returns:
            The range; empty and at `stop` if there is none.
        """
        after = bisect_right(self._starts, start)
        if after and self._stops[after - 1] > start:
            start = self._stops[after - 1]
        end = self._starts[after] if after < len(self._starts) else stop
        return (start, min(end, stop)) if start < stop else (stop, stop)
