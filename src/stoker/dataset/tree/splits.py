"""Units of a source that are assigned to workers, and the reader that receives them."""

import dataclasses
import enum
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

ENDLESS = 2**62
"""The `count` of an endless index source; more than any epoch can read."""


class IndexSplits(msgspec.Struct, frozen=True, tag="index"):
    """The source has `count` elements and can be cut anywhere; `ENDLESS`: no end."""

    count: int


class ListedSplits(msgspec.Struct, frozen=True, tag="listed"):
    """A worker must list the splits of the source, since only workers can read its data."""


class Unsplittable(msgspec.Struct, frozen=True, tag="unsplittable"):
    """The source cannot be split; `why` completes "... cannot be split: "."""

    why: str


Splits = IndexSplits | ListedSplits | Unsplittable


class Source(msgspec.Struct, frozen=True):
    """Description of a source for the dispatcher; part of a registration."""

    number: int
    kind: str
    site: str
    splits: IndexSplits | ListedSplits | Unsplittable


class ShardBy(enum.Enum):
    """The units that are divided among the workers under static sharding.

    FILES: the files of every source. ELEMENTS: the elements of the dataset. HINT: the input of each
    ``shard(SHARD_HINT, ...)``.
    """

    FILES = "files"
    ELEMENTS = "elements"
    HINT = "hint"


@dataclasses.dataclass(frozen=True)
class StaticShard:
    """The part of the data that a worker reads under static sharding.

    Attributes:
        reader: supplies the sources with the files of the shard.
        nodes: the numbers of the nodes that read the shard only, not all of the data.
    """

    reader: "SplitReader"
    nodes: frozenset[int]


class SplitReader(Protocol):
    """Supplies sources with their assigned splits.

    Attributes:
        draining: no more splits are assigned in any epoch, because the worker will stop.
    """

    draining: bool = False

    def open(self, source: int) -> Iterator[Any]:
        """Yield the splits of the source with node number `source`; call n is for its n-th epoch.

        Yields ``(start, stop)`` for `IndexSplits`, the listed values for `ListedSplits`. May block.
        """
        ...
