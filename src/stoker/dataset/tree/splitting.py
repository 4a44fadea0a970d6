"""Splits of the inputs of a zip: cut in elements of the zip, read in step by each branch.

For the dispatcher a zip is an index source with the length of its shortest branch. In each branch,
a range of the zip corresponds to a range of elements of the source.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node
from stoker.dataset.tree.splits import ENDLESS, IndexSplits, SplitReader, Unsplittable


@dataclass(frozen=True)
class _Branch:
    """An input of a zip with its source.

    Attributes:
        ratio: elements of the source per element of the branch.
        count: number of elements of the source.
        length: number of elements of the branch; `ENDLESS` without end.
    """

    ratio: int
    count: int
    length: int


# `len()` of a distributed dataset is the count of an undisturbed epoch, for progress bars; the
# cardinality holds whatever happens, and is unknown. (docs/decisions/090)
def split_cardinality(root: Node) -> int:
    """Return how many elements all tasks yield together, if this number is the same for all splits.

    Returns:
        The cardinality of `root` if every source is an index source, and every further node yields
        an element for each input element, repeats its input or concatenates. Otherwise, as after
        `batch` and `take`, which each task applies to its own splits, UNKNOWN_CARDINALITY.
    """
    stack = [root]
    while stack:
        node = stack.pop()
        splits = node.splits()
        if isinstance(splits, IndexSplits):
            continue
        sums = node.sums_inputs or node.inputs_per_element() == 1
        if splits is not None or not sums:
            return UNKNOWN_CARDINALITY
        stack += node.inputs
    return root.cardinality()


def aligned_splits(branches: Sequence[Node]) -> IndexSplits | Unsplittable:
    """Return how the inputs of a zip can be split, in elements of the zip."""
    lengths = []
    for node in branches:
        branch = _branch_of(node)
        if isinstance(branch, Unsplittable):
            return branch
        lengths.append(branch.length)
    return IndexSplits(min(lengths))


def _branch_of(root: Node) -> _Branch | Unsplittable:
    ratio = 1
    node = root
    while (splits := node.splits()) is None:
        count = node.inputs_per_element()
        if count is None:
            return Unsplittable(
                f"how many elements `{node.kind}` ({node.site}) makes of a split is known only by "
                f"reading it, so its inputs cannot stay aligned; apply `{node.kind}` after `zip`"
            )
        ratio *= count
        [node] = node.inputs
    if isinstance(splits, Unsplittable):
        return Unsplittable(f"its input `{node.kind}` ({node.site}) cannot be: {splits.why}")
    if not isinstance(splits, IndexSplits):
        return Unsplittable(
            f"how many elements `{node.kind}` ({node.site}) has is known only where it is read, so "
            "its inputs cannot stay aligned; apply `zip` to ranges or arrays"
        )
    length = ENDLESS if splits.count == ENDLESS else root.cardinality()
    return _Branch(ratio, splits.count, length)


def aligned_branches(node: Node, parts: Sequence[Node], context: Context) -> list[Context]:
    """Return a context for each input of a zip, so that all inputs read the same splits.

    Args:
        node: the zip; its splits are assigned under its number.
        parts: its inputs.
        context: the context of the zip.
    """
    if context.splits is None:
        return [context for _ in parts]
    branches = [_branch_of(part) for part in parts]
    ranges = _SharedRanges(
        context.splits.open(context.numbers[node]),
        [branch for branch in branches if isinstance(branch, _Branch)],
    )
    return [replace(context, splits=_BranchReader(ranges, i)) for i in range(len(parts))]


# A zip is a single source under DYNAMIC: splitting the inputs independently, as tf.data does, pairs
# elements at random with two or more workers. (docs/decisions/041)
class _SharedRanges:
    """The ranges assigned to a zip; each branch reads them at its own speed, from any thread.

    The range with the last, shorter batch of a branch comes last, independent of when it was
    assigned: later batches would no longer start where splits start.
    """

    def __init__(self, ranges: Iterator[Any], branches: list[_Branch]) -> None:
        self._ranges = ranges
        self._branches = branches
        self._read: list[deque[tuple[int, int]]] = [deque() for _ in branches]
        self._last: tuple[int, int] | None = None
        self._failure: BaseException | None = None
        self._lock = threading.Lock()

    def scaled(self, branch: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges in elements of the source of the branch."""
        ratio, count = self._branches[branch].ratio, self._branches[branch].count
        while (found := self._next(branch)) is not None:
            start, stop = found
            yield min(start * ratio, count), min(stop * ratio, count)

    def _next(self, branch: int) -> tuple[int, int] | None:
        waiting = self._read[branch]
        # Without the lock: another branch may hold the lock while waiting for the next range.
        if not waiting:
            with self._lock:
                if not waiting:
                    found = self._receive()
                    if found is None:
                        return None
                    for queue in self._read:
                        queue.append(found)
        return waiting.popleft()

    def _receive(self) -> tuple[int, int] | None:
        if self._failure is not None:  # not an end: another branch raised the failure too
            raise self._failure
        try:
            for start, stop in self._ranges:
                if not any(stop * each.ratio > each.count for each in self._branches):
                    return start, stop
                self._last = (start, stop)
        except BaseException as error:
            self._failure = error
            raise
        self._ranges = iter(())  # later calls find the end, too
        last, self._last = self._last, None
        return last


class _BranchReader(SplitReader):
    """Supplies the source below an input of a zip with its ranges."""

    def __init__(self, ranges: _SharedRanges, branch: int) -> None:
        self._ranges = ranges
        self._branch = branch

    def open(self, source: int) -> Iterator[Any]:
        """Yield the ranges; each epoch of the zip has its own reader."""
        return self._ranges.scaled(self._branch)
