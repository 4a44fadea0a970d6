"""Positions of calls of user functions, which are the same in every run of an epoch.

A *stream* is a function of a pipeline in an epoch of its node: a hash of what keys the
randomness of its calls (`random.Calls`), the number of the node and the epoch. A position is a
stream and the number of the element in the input of the node.
"""

import hashlib
import pickle
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

UNPLACED = 0
"""Stream of user code that has no position, such as that of a generator."""

NO_DIGEST = 0

_MASK = (1 << 63) - 1


class CallRange(NamedTuple):
    """Consecutive calls of a stream, for the input elements `first` to `stop` - 1."""

    stream: int
    first: int
    stop: int


class PoisonedCall(NamedTuple):
    """A call that ends the process; `digest` is that of its element, `how` describes a death."""

    stream: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    digest: int
    how: str


def stream_of(number: int, epoch: Sequence[int]) -> int:
    """Return the stream of the function of a node, by the number of the node and its epoch."""
    return hash((number, *epoch)) & _MASK | 1  # the same in all processes for ints


def digest_of(element: Any) -> int:
    """Return a digest of an element, equal in all processes; `NO_DIGEST` if there is none."""
    try:
        data = pickle.dumps(element, 5)
    except Exception:  # noqa: BLE001 - a class may refuse to be pickled by any exception
        return NO_DIGEST
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return int.from_bytes(digest, "little") & _MASK | 1  # never 0, which is no digest


def merged(ranges: Iterable[CallRange]) -> list[CallRange]:
    """Return the positions of `ranges` in order, as ranges that do not touch."""
    result: list[CallRange] = []
    for each in sorted(ranges):
        last = result[-1] if result else None
        if last is not None and last.stream == each.stream and each.first <= last.stop:
            result[-1] = last._replace(stop=max(last.stop, each.stop))
        elif each.first < each.stop:
            result.append(each)
    return result


def common(ranges: Iterable[CallRange], others: Iterable[CallRange]) -> list[CallRange]:
    """Return the positions that are in both."""
    by_stream: dict[int, list[CallRange]] = {}
    for other in merged(others):
        by_stream.setdefault(other.stream, []).append(other)
    return [
        CallRange(x.stream, max(x.first, y.first), min(x.stop, y.stop))
        for x in merged(ranges)
        for y in by_stream.get(x.stream, ())
        if max(x.first, y.first) < min(x.stop, y.stop)
    ]


def without(ranges: Iterable[CallRange], others: Iterable[CallRange]) -> list[CallRange]:
    """Return the positions that are in `ranges` and not in `others`."""
    others = merged(others)
    result = []
    for each in merged(ranges):
        first = each.first
        for cut in common([each], others):
            result.append(each._replace(first=first, stop=cut.first))
            first = cut.stop
        result.append(each._replace(first=first))
    return merged(result)


class PositionSet:
    """Positions of a stream.

    Args:
        ranges: the positions, as returned by `merged`.
    """

    def __init__(self, ranges: Sequence[CallRange]) -> None:
        self._firsts = [each.first for each in ranges]
        self._stops = [each.stop for each in ranges]

    def __contains__(self, index: int) -> bool:
        return self.distance(index) == 0

    def distance(self, index: int) -> int | None:
        """Return how far the next position from `index` on is; ``None`` if there is none."""
        at = bisect_right(self._firsts, index)
        if at and index < self._stops[at - 1]:
            return 0
        return self._firsts[at] - index if at < len(self._firsts) else None
