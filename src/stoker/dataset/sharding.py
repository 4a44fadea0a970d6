"""Static shards: the tree and the sources that each of several workers reads.

Every worker knows its number among all workers, so none asks for its part of the data, except for
the names of files, which are listed once, so that all workers divide the same list.
"""

from collections.abc import Mapping

import numpy as np

from stoker.dataset.nodes.flat_map import FlatMap
from stoker.dataset.nodes.interleave import Interleave
from stoker.dataset.nodes.prefetch import Prefetch
from stoker.dataset.nodes.records import Records
from stoker.dataset.nodes.shard import Shard, WorkerShard
from stoker.dataset.tree.node import SHARD_HINT, Node, number
from stoker.dataset.tree.reachable import reachable
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, ShardBy, Source, Unsplittable
from stoker.elements.spec import TensorSpec


def file_sources(root: Node) -> list[Source]:
    """Return all sources, with the splits that shards of their files have.

    The splits are `ListedSplits` for listed files, `IndexSplits` for an array of names, of which a
    later step opens datasets or files, and `Unsplittable` for a source without files.
    """

    def inputs_of(step: tuple[Node, bool]) -> list[tuple[Node, bool]]:
        node, opened = step
        opened = opened or isinstance(node, Records | FlatMap | Interleave)
        return [(child, opened) for child in node.split_inputs()]

    found: dict[Node, bool] = {}
    for node, opened in reachable([(root, False)], inputs_of):
        if not node.inputs:
            found[node] = found.get(node, False) or opened
    return [
        Source(position, node.kind, node.site, _file_splits(node, found[node]))
        for node, position in number(root).items()
        if node in found
    ]


def _file_splits(node: Node, opened: bool) -> ListedSplits | IndexSplits | Unsplittable:
    splits = node.splits()
    if isinstance(splits, ListedSplits):
        return splits
    if isinstance(splits, IndexSplits) and opened and _are_names(node):
        return splits
    return Unsplittable("it does not read files")


def _are_names(node: Node) -> bool:
    spec = node.element_spec()
    return isinstance(spec, TensorSpec) and spec.shape == () and np.dtype(spec.dtype).kind in "OSU"


# The worker inserts the shard into the tree, so the dispatcher keeps no position.
# (docs/decisions/056)
def with_shard(
    root: Node, numbers: Mapping[Node, int], by: ShardBy, count: int, index: int
) -> tuple[Node, Mapping[Node, int], frozenset[int]]:
    """Return the tree that a worker reads, its numbers, and the numbers of nodes that read a shard.

    A node keeps its number, so that all workers draw the same random numbers; an inserted shard has
    the number of its input. The source of listed files is not replaced, and reads the files of the
    shard.

    Args:
        root: the tree.
        numbers: of its nodes.
        by: the units that are divided.
        count: the number of shards.
        index: the shard.
    """
    changed: dict[Node, Node] = {}
    result: dict[Node, int] = {}
    sharded: set[int] = set()
    above = _below_prefetch(root) if by is ShardBy.ELEMENTS else None
    files = {x.number: x.splits for x in file_sources(root)} if by is ShardBy.FILES else {}
    for node in sorted(numbers, key=numbers.__getitem__):
        new = node.with_inputs([changed[child] for child in node.inputs])
        position = numbers[node]
        if any(numbers[child] in sharded for child in node.inputs):
            sharded.add(position)
        if by is ShardBy.HINT and isinstance(new, Shard) and new.num_shards == SHARD_HINT:
            new = WorkerShard(input=new.input, num_shards=count, index=index, site=new.site)
            sharded.add(position)
        result[new] = position
        splits = files.get(position)
        if isinstance(splits, ListedSplits | IndexSplits):
            sharded.add(position)
        if isinstance(splits, IndexSplits) or node is above:
            kind = WorkerShard if by is ShardBy.FILES else Shard
            new = kind(input=new, num_shards=count, index=index, site=node.site)
            result[new] = position
        changed[node] = new
    return changed[root], result, frozenset(sharded)


def _below_prefetch(root: Node) -> Node:
    """Return the last node that computes elements: what is read ahead is only the shard's."""
    node = root
    while isinstance(node, Prefetch):
        node = node.input
    return node
