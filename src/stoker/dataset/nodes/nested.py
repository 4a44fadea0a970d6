"""Opening of the datasets that a user function returns."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from stoker.dataset.random import keyed, stream_calls
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import raise_failure
from stoker.dataset.streams.measure.recording import OpenedSampler
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.errors import InvalidTypeError


class NestedDatasets:
    """Opens the datasets that the function of a node returns; from any thread.

    Each dataset yields all its elements, and draws independently: a shuffle in the second dataset
    has another order than in the first.

    Args:
        context: the context of the node.
        node: the node of the function.
        function: the user's function.
    """

    def __init__(self, context: Context, node: Node, function: Callable[..., Any]) -> None:
        self._node = node
        self._function = function
        self._outer = context
        self._recorded = stream_calls(context, node)
        # Datasets of two nodes draw differently: the node's number is in their epoch.
        self._context = context.inner(context.numbers[node])
        self._meters = OpenedSampler(context.meters.nested(node, context.numbers))

    def open(self, index: int, arguments: tuple[Any, ...]) -> Stream:
        """Call the function and open the dataset that the function returns.

        Args:
            index: the position in the node's input, or the number of the dataset.
            arguments: of the function.

        Raises:
            InvalidArgumentError: if the function did not return a dataset.
            Exception: an error of the function or of opening its dataset, with its origin.
        """
        try:
            with keyed(self._outer, self._node, index, self._recorded, arguments):
                result = self._function(*arguments)
            return self._open(result, index)
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            argument = arguments[0] if len(arguments) == 1 else arguments
            raise_failure(error, self._node.origin.at(index, argument))

    def _open(self, result: Any, index: int) -> Stream:
        root = getattr(result, "node", None)
        if not isinstance(root, Node):
            raise InvalidTypeError(
                f"the function of {self._node.kind} must return a Dataset; it returned a "
                f"{type(result).__qualname__}; wrap it, as in Dataset.from_tensor_slices(...)"
            )
        context = self._context.nested(root, index, self._meters.next())
        seed = result.options().seed
        if seed is not None:
            context = replace(context, seed=seed)
        return open_stream(root, context)
