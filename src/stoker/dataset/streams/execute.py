"""Open trees as streams."""

from itertools import chain

from msgspec.structs import replace

from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node, number
from stoker.dataset.tree.reachable import reachable
from stoker.dataset.tree.rewrite import rewrite
from stoker.dataset.tree.walk import classes_of_functions


def open_stream(root: Node, context: Context) -> Stream:
    """Rewrites and opens the tree for a pass.

    Args:
        root: the tree.
        context: of the pass; without numbers of the tree, the tree's own numbers are used.
    """
    numbers = context.numbers if root in context.numbers else number(root)
    tree, numbers = rewrite(root, numbers)
    enclosing = context.record_classes
    context = replace(
        context,
        numbers=numbers,
        output_nodes=_output_nodes(tree),
        record_classes=lambda: chain(enclosing(), classes_of_functions(root)),
    )
    stream = context.open(tree)
    context.meters.join(tree, numbers)
    return stream


def _output_nodes(root: Node) -> frozenset[Node]:
    """Return the nodes whose elements leave the tree; nodes above only forward elements."""
    # Only arrays that no function sees and no buffer keeps may be written into the memory that the
    # caller allocates, which is reused after the batch was sent.
    nodes = reachable([root], lambda node: node.inputs if node.forwards_elements else ())
    return frozenset(node for node in nodes if not node.forwards_elements)
