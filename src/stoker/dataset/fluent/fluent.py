"""What the families of `Dataset` methods stand on."""

from typing import Self

from stoker.dataset.iterator import Iterator
from stoker.dataset.tree.node import Node
from stoker.elements.spec import Spec


class Fluent:
    """A tree that methods build on; `Dataset` is the one subclass users meet."""

    @property
    def node(self) -> Node:
        """The tree, as it is executed and sent."""
        raise NotImplementedError

    @property
    def element_spec(self) -> Spec:
        """What is known or declared of the elements."""
        raise NotImplementedError

    @classmethod
    def _source(cls, node: Node) -> Self:
        """A dataset of a tree that reads no other dataset."""
        raise NotImplementedError

    def _derive(self, node: Node, *others: "Fluent") -> Self:
        """A dataset of a tree on top of this one's, and of the others' if it reads several.

        Its options are those of all of them; where they contradict, a later one's hold.
        """
        raise NotImplementedError

    def iterator(self) -> Iterator:
        """Begins a pass."""
        raise NotImplementedError
