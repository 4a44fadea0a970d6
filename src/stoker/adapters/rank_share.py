"""The part of a local dataset that a rank reads, and where the pipeline is cut."""

from collections.abc import Callable
from typing import Any, ClassVar

from stoker.dataset import nodes
from stoker.dataset.dataset import Dataset
from stoker.dataset.drawn_seeds import Salt
from stoker.dataset.positions.exchange import (
    MOVED_MAP,
    nodes_above,
    put_below,
    with_maps_behind_shuffle,
)
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.call_site import call_site
from stoker.dataset.tree.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Context,
    Node,
    OneInput,
)
from stoker.dataset.tree.table import Table

_ABOVE = ("map", "prefetch", "batch", "padded_batch", "cache", "repeat", "take", "skip")
_MAPS = ("map", MOVED_MAP, "prefetch")
_BATCHES = ("batch", "padded_batch")
_CACHE = ("cache",)  # in memory: each process keeps its own part


class ProcessShare(nodes.Shard, frozen=True, eq=False, kw_only=True):
    """The elements of a process: at positions `index`, ``index + num_shards``, ..."""

    kind: ClassVar[str] = "process_share"

    def division(self) -> tuple[int, int]:
        return self.num_shards, self.index


class RankShare(OneInput, frozen=True, eq=False, kw_only=True):
    """The elements at positions `rank`, ``rank + world_size``, ... of complete groups.

    The last ``cardinality % world_size`` elements are dropped, so that all ranks get as many.

    Attributes:
        world_size: number of ranks.
        rank: of this process.
    """

    kind: ClassVar[str] = "rank_share"
    forwards_elements: ClassVar[bool] = True
    selects_rows: ClassVar[bool] = True
    # All ranks are at the same position, so that the state of each is the state of all.
    tuning: ClassVar[frozenset[str]] = frozenset({"rank"})
    world_size: int
    rank: int

    def cardinality(self) -> int:
        whole = self.input.cardinality()
        return whole if whole < 0 else whole // self.world_size

    def table(self) -> Table | None:
        return None if self._is_counted_by_reading() else super().table()

    def fused(self) -> Node:
        if self._is_counted_by_reading():
            return self
        # With a known length no group is counted by reading: a shard ends at that length.
        shard = ProcessShare(
            input=self.input, num_shards=self.world_size, index=self.rank, site=self.site
        )
        count = self.cardinality()
        if count == INFINITE_CARDINALITY:
            return shard
        return nodes.Take(input=shard, count=count, site=self.site)

    def division(self) -> tuple[int, int]:
        return self.world_size, self.rank

    def open(self, context: Context) -> Stream:
        return _CompleteGroups(self, context.open(self.input))

    # Only the end of the input says which group is complete.
    def _is_counted_by_reading(self) -> bool:
        return self.input.cardinality() < 0 and self.input.cardinality() != INFINITE_CARDINALITY


class _CompleteGroups(OneInputStream):
    """Yields an element of each group of `world_size`, once the whole group was passed."""

    def __init__(self, node: RankShare, stream: Stream) -> None:
        super().__init__(stream)
        self._before = node.rank
        self._after = node.world_size - 1 - node.rank
        self._group = node.world_size

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._input.advance(self._before) < self._before:
            return []
        failure = None
        chunk: list[Any] = []
        try:
            chunk = self._input.next_chunk(1, 1)
        except Exception as error:  # noqa: BLE001 - raised if the group is complete
            failure = error
        if (failure is None and not chunk) or self._input.advance(self._after) < self._after:
            return []
        if failure is not None:
            raise failure
        return chunk

    def advance(self, n: int) -> int:
        return self._input.advance(n * self._group) // self._group


# A shard is inserted below maps and below the last batches, so that a rank computes only its own
# samples. (docs/decisions/092)
def share_of(dataset: Dataset, rank: int, world_size: int) -> Dataset:
    """Return the part of a local dataset that a rank reads; all ranks get as many elements.

    The part is taken below maps, so that a rank computes only its own elements, below caches in
    memory, and below the batches that end the pipeline: each rank batches its own elements.
    """
    site = call_site()
    return _insert(
        with_maps_after_shuffle(dataset),
        (*_MAPS, *_BATCHES, *_CACHE),
        lambda node: RankShare(input=node, rank=rank, world_size=world_size, site=site),
    )


def makes_own_batches(dataset: Dataset) -> bool:
    """Return whether each rank batches its own elements, so that all have batches of equal size."""
    return nodes_above(dataset.node, (*_MAPS, *_CACHE))[1].kind in _BATCHES


def part_of(dataset: Dataset, index: int, count: int) -> Dataset:
    """Return the part of a dataset that process `index` of the `count` processes of a rank reads.

    The parts add up to the dataset. Batches are not cut, so that there are as many as without.
    """
    site = call_site()
    return _insert(
        with_maps_after_shuffle(dataset),
        (*_MAPS, *_CACHE),
        lambda node: ProcessShare(input=node, num_shards=count, index=index, site=site),
    )


def shuffled(dataset: Dataset, salt: int = 0) -> Dataset:
    """Return the dataset in random order, drawn from all elements below its last batch.

    Elements are drawn before maps compute, and need no memory for what maps return. `salt` is the
    salt of the shuffle.
    """
    site = call_site()
    return _insert(
        dataset,
        (*_MAPS, *_BATCHES),
        lambda node: nodes.Shuffle(
            input=node, buffer_size=UNKNOWN_CARDINALITY, salt=Salt(salt), site=site
        ),
    )


def with_maps_after_shuffle(dataset: Dataset) -> Dataset:
    """Return an equal dataset whose last shuffle precedes the maps of its input, if possible."""
    above, node = nodes_above(dataset.node, _ABOVE)
    moved = with_maps_behind_shuffle(node)
    return dataset if moved is node else dataset._with_node(put_below(above, moved))


def _insert(dataset: Dataset, above: tuple[str, ...], make: Callable[[Node], Node]) -> Dataset:
    """Insert a node below the nodes of the kinds `above` that end the pipeline."""
    passed, node = nodes_above(dataset.node, above)
    return dataset._with_node(put_below(passed, make(node)))
