"""Rewriting of the user's tree: into the tree to run, and into a tree of known length."""

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from stoker.dataset.tree.node import Node, number

# A node is rewritten once, so that a cache below or above is the same node object in every
# epoch. None: unchanged (the node itself as a value would keep its own key alive).
_rewritten: WeakKeyDictionary[Node, Node | None] = WeakKeyDictionary()


def rewrite(root: Node, numbers: Mapping[Node, int]) -> tuple[Node, Mapping[Node, int]]:
    """Return the tree to run and its numbers; a rewritten node keeps its number."""
    result = dict(numbers)
    done: dict[Node, Node] = {}
    for node in sorted(numbers, key=numbers.__getitem__):
        replaced = _rewrite_node(node, done)
        done[node] = replaced
        result[replaced] = numbers[node]
    return done[root], result


def counted(root: Node) -> Node:
    """Return the tree with the cardinality that ``len`` returns; see `Node.counted`."""
    done: dict[Node, Node] = {}
    for node in number(root):
        done[node] = node.with_inputs([done[child] for child in node.inputs]).counted()
    return done[root]


def _rewrite_node(node: Node, done: Mapping[Node, Node]) -> Node:
    known = _rewritten.get(node, node)
    if known is not node:
        return node if known is None else known
    replaced = node.with_inputs([done[child] for child in node.inputs]).fused()
    _rewritten[node] = None if replaced is node else replaced
    return replaced
