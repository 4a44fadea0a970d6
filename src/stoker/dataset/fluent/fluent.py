"""Base class of the families of `Dataset` methods."""

from typing import Any, Generic

from msgspec.structs import replace

from stoker.dataset.iterator import Iterator, T_co
from stoker.dataset.tree.call_site import call_site
from stoker.dataset.tree.node import Node
from stoker.elements.spec import Spec


# The families name the class by its public name, for type checkers only: it is made from them.
# See docs/decisions/100.
class Fluent(Generic[T_co]):
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
    def _source(cls, node: Node) -> Any:
        """Return a dataset of a tree that reads no dataset.

        Typed ``Any``, as the next two: the method that calls it knows the type of the elements.
        """
        raise NotImplementedError

    def _derive(self, node: Node, *others: "Fluent[Any]") -> Any:
        """Return a dataset of a tree that reads this dataset and `others`.

        The options of all datasets apply; on a conflict, the option of the last dataset.
        """
        raise NotImplementedError

    def _append(self, node: Node, *others: "Fluent[Any]") -> Any:
        """Return what `_derive` returns, with the user's line as the site of `node`."""
        # The frames of stoker are skipped, so that the line is the user's at any depth of calls.
        return self._derive(replace(node, site=call_site()), *others)

    def iterator(self) -> Iterator[T_co]:
        """Start the next epoch."""
        raise NotImplementedError
