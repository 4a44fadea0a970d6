"""Positions in the whole epoch of what a stream reads, which are not the positions in the stream.

A stream of positions reads ranges in any order. The functions of its nodes draw random numbers,
and number their errors and calls, as in an epoch that is read from its beginning.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias


class Level(NamedTuple):
    """Relation between the elements of a node and those of the source.

    Attributes:
        group: elements of the source per element, in the stream.
        stride: the positions of two elements in the source differ by this number, in the whole.
        offset: position in the source of the element at position 0.
    """

    group: int = 1
    stride: int = 1
    offset: int = 0


class Place(NamedTuple):
    """Position of an element in the whole epoch.

    The `left` elements from this element on are `step` positions apart.
    """

    position: int
    step: int
    left: int


PlaceOf: TypeAlias = Callable[[int], Place | None]
"""Returns the place of an element by its position in a stream; see `PositionLog.place`."""


def positions_of(place_of: PlaceOf, first: int, stop: int) -> Iterator[range]:
    """Yield the positions in the whole epoch of elements that the source has read, in order.

    Args:
        place_of: of the stream.
        first: position of the first element in the stream.
        stop: position after the last element.
    """
    while first < stop:
        place = place_of(first)
        assert place is not None
        count = min(place.left, stop - first)
        yield range(place.position, place.position + count * place.step, place.step)
        first += count


class PositionLog:
    """The ranges that the source of a stream has read; used from any thread.

    Args:
        levels: of the nodes above the source, by number.
    """

    def __init__(self, levels: Mapping[int, Level]) -> None:
        self._levels = levels
        self._lock = threading.Lock()
        # The positions in the stream at which ranges begin, and the ranges.
        self._firsts: list[int] = []
        self._ranges: list[range] = []
        self.count = 0
        """Number of elements of the source in the log."""

    def add(self, positions: range) -> None:
        """Note that the source reads these positions next."""
        with self._lock:
            self._firsts.append(self.count)
            self._ranges.append(positions)
            self.count += len(positions)

    def forget(self, count: int) -> None:
        """Drop the ranges among the first `count` elements of the source, which were yielded."""
        with self._lock:
            dropped = bisect_right(self._firsts, count) - 1
            if count >= self.count:
                dropped = len(self._firsts)
            if dropped > 0:
                del self._firsts[:dropped], self._ranges[:dropped]

    def place(self, number: int, index: int) -> Place | None:
        """Return the place of the element at position `index` of a node's stream.

        Args:
            number: of the node.
            index: the position.

        Returns:
            The place; ``None`` if the source has not read the element yet.
        """
        group, stride, offset = self._levels[number]
        index *= group
        with self._lock:
            at = bisect_right(self._firsts, index) - 1
            if at < 0 or index >= self.count:
                return None
            positions, index = self._ranges[at], index - self._firsts[at]
        step = max(1, positions.step * group // stride)
        left = -(-(len(positions) - index) // group)
        return Place((positions[index] - offset) // stride, step, left)

    def position(self, number: int, index: int) -> int:
        """Return the position of an element that the source has read; see `place`."""
        place = self.place(number, index)
        if place is None:
            raise AssertionError(f"node {number} has no element {index} in the log")
        return place.position
