"""The nodes of a graph that are reached from some of its nodes."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

_Node = TypeVar("_Node", bound=Hashable)


def reachable(
    starts: Iterable[_Node], inputs_of: Callable[[_Node], Iterable[_Node]]
) -> Iterator[_Node]:
    """Yield `starts` and all that is reached from them by their inputs, each once."""
    pending, seen = list(starts), set[_Node]()
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            yield node
            pending.extend(inputs_of(node))
