"""Datasets that a function makes while a pipeline is read: how they are opened."""

import dataclasses
from collections.abc import Callable
from typing import Any

from stoker.dataset.random import keyed
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import Origin, raise_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.errors import InvalidArgumentError


class NestedDatasets:
    """Opens the datasets that the function of one node returns; from any thread.

    They read everything, and each draws for itself: a shuffle in the second dataset has another
    order than in the first.

    Args:
        context: of the pass.
        node: whose function it is.
        function: the user's.
    """

    def __init__(self, context: Context, node: Node, function: Callable[..., Any]) -> None:
        self._node = node
        self._function = function
        self._outer = context
        # Datasets of two nodes draw differently: the node's number is in their epoch.
        self._context = context.inner(context.numbers[node])

    def open(self, index: int, arguments: tuple[Any, ...]) -> Stream:
        """Calls the function and opens what it returns.

        Args:
            index: the position in the node's input, or which of its datasets this is.
            arguments: of the function.

        Raises:
            InvalidArgumentError: the function returned no dataset.
            Exception: what the function raised, or opening its dataset; marked with its origin.
        """
        try:
            with keyed(self._outer, self._node, index):
                result = self._function(*arguments)
            return self._open(result, index)
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            raise_failure(error, Origin(self._node.kind, self._node.site, index))

    def _open(self, result: Any, index: int) -> Stream:
        root = getattr(result, "node", None)
        if not isinstance(root, Node):
            raise InvalidArgumentError(
                f"the function of {self._node.kind} must return a Dataset; it returned a "
                f"{type(result).__qualname__}; wrap it, as in Dataset.from_tensor_slices(...)"
            )
        context = self._context.nested(root, index)
        seed = result.options().seed
        if seed is not None:
            context = dataclasses.replace(context, seed=seed)
        return open_stream(root, context)
