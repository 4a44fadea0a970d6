"""Walks over a tree: in the order in which nodes are shown, and to its user functions."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.node import Node, layout_of, number

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
    # A stack, not recursion: trees may be deeper than Python's limit of frames.
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


def functions_of(root: Node) -> list[tuple[str, Pickled]]:
    """Return what `encode_tree` pickles, each with the site of its node, in a fixed order."""
    return [
        (node.site, opaque)
        for node in number(root)
        for name in layout_of(type(node)).pickled
        if (opaque := getattr(node, name)) is not None
    ]


def classes_of_functions(root: Node) -> Iterator[type]:
    """Yield the namedtuple and dataclass classes that the functions refer to."""
    for _, pickled in functions_of(root):
        try:
            _ = pickled.value  # on a worker the function may not be unpickled yet
            classes = pickled.code().record_classes
        except Exception:  # noqa: BLE001 - a function that is not called in this epoch
            continue
        yield from classes
