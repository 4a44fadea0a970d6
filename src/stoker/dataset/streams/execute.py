"""Open trees as streams."""

import dataclasses

from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node, number
from stoker.dataset.tree.rewrite import rewrite


def open_stream(root: Node, context: Context) -> Stream:
    """Rewrites the tree and opens it for one pass.

    Args:
        root: the tree.
        context: of the pass; where it does not number the tree, the tree's own numbers are used.
    """
    numbers = context.numbers if root in context.numbers else number(root)
    tree, numbers = rewrite(root, numbers)
    return tree.open(dataclasses.replace(context, numbers=numbers, outgoing=_makers(tree)))


def _makers(root: Node) -> frozenset[Node]:
    """The nodes that make what the tree yields; all above them pass elements on."""
    makers = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node.forwards_elements:
            stack.extend(node.inputs)
        else:
            makers.add(node)
    return frozenset(makers)
