"""The order in which the nodes of a tree are shown."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

_Node = TypeVar("_Node", bound=Hashable)


def inputs_first(
    root: _Node, inputs_of: Callable[[_Node], Iterable[tuple[_Node, int]]]
) -> Iterator[tuple[_Node, int, bool]]:
    """Yield the nodes of a tree, each after its inputs; a tree of any depth needs no recursion.

    Args:
        root: the last node.
        inputs_of: returns the inputs of a node, each with its depth below that node.

    Yields:
        A node, its depth, and True if yielded before: then its inputs are not repeated.
    """
    entered: set[_Node] = set()
    pending = [(root, 0, False)]
    while pending:
        node, depth, follows_inputs = pending.pop()
        if follows_inputs or node in entered:
            yield node, depth, not follows_inputs
            continue
        entered.add(node)
        pending.append((node, depth, True))
        inputs = [(each, depth + below, False) for each, below in inputs_of(node)]
        pending.extend(reversed(inputs))
