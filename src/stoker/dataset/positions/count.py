"""The decision whether the position of every element is known without computing it."""

from stoker.dataset.positions.arithmetic import length_of, nodes_by_position
from stoker.dataset.positions.counted import Counted, NotCounted, Positions
from stoker.dataset.positions.exchange import put_below, with_maps_behind_shuffle
from stoker.dataset.positions.first_epoch import without_caches
from stoker.dataset.tree.node import Node, number
from stoker.dataset.tree.splits import IndexSplits


def count_positions(root: Node) -> Positions:
    """Return the number of positions of a tree, or the first node that prevents their use.

    No function of the user is called or unpickled.
    """
    if _is_counted(root):
        return Counted(length_of(root))
    node = next(node for node in number(root) if not _is_counted(node))
    return NotCounted(node.stage_kind, node.site, node.uncounted)


def _is_counted(root: Node) -> bool:
    _, source = nodes_by_position(counted_form(root))
    return source.table() is not None or is_indexed(source)


def counted_form(root: Node) -> Node:
    """Return an equal tree with as many nodes, whose nodes by position are above a source or table.

    Maps follow the shuffles that they preceded, and caches keep nothing.
    """
    root = without_caches(root)
    above, node = nodes_by_position(root)
    moved = with_maps_behind_shuffle(node)
    return root if moved is node else put_below(above, moved)


def is_indexed(source: Node) -> bool:
    """Return whether a node is a source whose elements are read by their positions."""
    return not source.inputs and isinstance(source.splits(), IndexSplits)
