"""Caches of a counted tree, which keep nothing: their input is computed as in their first epoch."""

import logging
from typing import ClassVar

from msgspec.structs import replace

from stoker.dataset.nodes import Cache, CacheFile, Snapshot
from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node, OneInput, number

logger = logging.getLogger("stoker.dataset")

_warned: set[str] = set()
"""The lines of caches for which this process has warned."""


class FirstEpoch(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields its input as in the epoch 0 that a cache would keep, whatever the epoch."""

    forwards_elements: ClassVar[bool] = True
    selects_rows: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    cache: str

    @property
    def stage_kind(self) -> str:
        return self.cache

    def input_positions(self) -> InputPositions:
        return InputPositions()

    def open(self, context: Context) -> Stream:
        if self.site not in _warned:
            _warned.add(self.site)
            logger.warning(
                "`%s` (%s) keeps nothing in a deterministic epoch, whose elements are divided "
                "differently among workers each time: they are computed again in each epoch",
                self.cache,
                self.site,
            )
        return replace(context, epoch=(0,)).open(self.input)


def without_caches(root: Node) -> Node:
    """Return the tree with a `FirstEpoch` in place of each cache and snapshot."""
    done: dict[Node, Node] = {}
    for node in number(root):
        inputs = [done[child] for child in node.inputs]
        done[node] = node.with_inputs(inputs)
        if is_cache(node):
            [below] = inputs
            done[node] = FirstEpoch(input=below, cache=node.stage_kind, site=node.site)
    return done[root]


def is_cache(node: Node) -> bool:
    """Return whether a node keeps elements of its input in the order of the input."""
    if isinstance(node, Snapshot):
        return node.reader_func is None
    return isinstance(node, Cache | CacheFile)
