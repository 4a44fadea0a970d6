"""Base class of the families of `Dataset` methods."""

from typing import Self

from msgspec.structs import replace

from stoker.dataset.iterator import Iterator
from stoker.dataset.tree.call_site import call_site
from stoker.dataset.tree.node import Node
from stoker.elements.spec import Spec


class Fluent:
    """Interface to the tree that the methods extend; `Dataset` implements it."""

    @property
    def node(self) -> Node:
        """Root of the tree."""
        raise NotImplementedError

    @property
    def element_spec(self) -> Spec:
        """Known or declared spec of the elements."""
        raise NotImplementedError

    @classmethod
    def _source(cls, node: Node) -> Self:
        """Return a dataset of a tree that reads no dataset."""
        raise NotImplementedError

    def _derive(self, node: Node, *others: "Fluent") -> Self:
        """Return a dataset of a tree that reads this dataset and `others`.

        The options of all datasets apply; on a conflict, the option of the last dataset.
        """
        raise NotImplementedError

    def _append(self, node: Node, *others: "Fluent") -> Self:
        """Return what `_derive` returns, with the user's line as the site of `node`."""
        # The frames of stoker are skipped, so that the line is the user's at any depth of calls.
        return self._derive(replace(node, site=call_site()), *others)

    def iterator(self) -> Iterator:
        """Start the next epoch."""
        raise NotImplementedError
