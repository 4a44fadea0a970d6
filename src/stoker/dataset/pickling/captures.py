"""Names of the large data that is pickled with a dataset."""

from collections.abc import Iterator

from stoker.dataset.tree.node import Node, layout_of, number

_LEAST_BYTES = 1_000_000
_MOST_NAMES = 5


def large_captures(root: Node) -> str:
    """Return the largest variables and elements that are pickled with a tree, as a list."""
    found = sorted(_captures(root), reverse=True)
    names = [f"{what}, {size / 1e6:,.0f} MB" for size, what in found[:_MOST_NAMES]]
    if len(found) > _MOST_NAMES:
        names.append(f"{len(found) - _MOST_NAMES} more")
    return "; ".join(names)


def _captures(root: Node) -> Iterator[tuple[int, str]]:
    for node in number(root):
        for field in layout_of(type(node)).pickled:
            pickled = getattr(node, field)
            if pickled is None or len(pickled.blob) < _LEAST_BYTES:
                continue
            variables = pickled.large_references(_LEAST_BYTES)
            for variable, function, size in variables:
                yield size, f"`{variable}`, used by `{function}` of `{node.kind}` ({node.site})"
            if not variables:
                yield len(pickled.blob), f"`{field}` of `{node.kind}` ({node.site})"
