"""The user functions of a tree, and the classes that these functions refer to."""

from collections.abc import Iterator

from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.node import Node, layout_of, number


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
            classes = pickled.record_classes()
        except Exception:  # noqa: BLE001 - a function that is not called in this epoch
            continue
        yield from classes
