"""Units of a source that are assigned to workers, and the reader that receives them."""

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

ENDLESS = 2**62
"""The `count` of an index source without end; no pass comes near it."""


class IndexSplits(msgspec.Struct, frozen=True, tag="index"):
    """The source is `count` elements that can be cut anywhere; `ENDLESS`: it has no end."""

    count: int


class ListedSplits(msgspec.Struct, frozen=True, tag="listed"):
    """The source's splits are known only where its data is: a worker lists them."""


class Unsplittable(msgspec.Struct, frozen=True, tag="unsplittable"):
    """The source can only be read whole; `why` completes "... cannot be split: "."""

    why: str


Splits = IndexSplits | ListedSplits | Unsplittable


class Source(msgspec.Struct, frozen=True):
    """A source of a tree, as the dispatcher sees it: it travels when a dataset is registered."""

    number: int
    kind: str
    site: str
    splits: IndexSplits | ListedSplits | Unsplittable


class SplitReader(Protocol):
    """Hands a source the splits it shall read."""

    def open(self, source: int) -> Iterator[Any]:
        """The splits of the source with this node number; the n-th call is its n-th pass.

        Yields ``(start, stop)`` for `IndexSplits`, the listed values for `ListedSplits`. May block.
        """
        ...
