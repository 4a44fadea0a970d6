"""A stream that looks at each element of its input."""

import time
from abc import abstractmethod
from typing import Any

from stoker.dataset.random import Calls
from stoker.dataset.streams.blocks import BlockStream
from stoker.dataset.streams.deadline import chunk_deadline
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.elements.sizes import element_bytes

# What `step` returns for an element that yields nothing, and for an element that ends the stream.
SKIP: Any = object()
END: Any = object()


class Stepwise(BlockStream):
    """Yields what `step` returns for each element; an error of `step` takes a position.

    Args:
        context: of the epoch.
        node: the node of this stream, in the tree that the context numbers.
        stream: the input.
    """

    def __init__(self, context: Context, node: Node, stream: Stream) -> None:
        super().__init__(stream, node.origin, Calls(context, node))

    @abstractmethod
    def step(self, element: Any) -> Any:
        """Return what the element yields, SKIP or END; `stoker.random.generator` works here.

        `_index` counts the input's positions so far, this position included.
        """

    def _compute(self, chunk: list[Any], max_elements: int, max_bytes: int) -> None:
        deadline = chunk_deadline()
        with self._keyed as elements:
            for element in elements:
                try:
                    found = self.step(element)
                except Exception as error:  # noqa: BLE001 - raised at its position
                    self._fail(error)
                    return
                if found is END:
                    self._end()
                    return
                if found is not SKIP:
                    chunk.append(found)
                    if len(chunk) >= max_elements:
                        return
                    max_bytes -= element_bytes(found)
                    if max_bytes <= 0:
                        return
                if chunk and time.perf_counter() > deadline:
                    return
