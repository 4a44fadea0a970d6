"""A stream that looks at its input's elements one after the other, in the thread that reads."""

import time
from abc import abstractmethod
from collections.abc import Iterator
from operator import length_hint
from typing import Any

from stoker.dataset.random import Calls
from stoker.dataset.streams.failures import Origin, mark_failure
from stoker.dataset.streams.stream import ChunkedStream, Stream
from stoker.dataset.tree.node import Context, Node
from stoker.elements.sizes import element_bytes

# What `step` returns for an element that yields nothing, and for one that ends the stream.
SKIP: Any = object()
END: Any = object()

# A chunk is handed on when computing it has taken this long.
_CHUNK_SECONDS = 0.5e-3


class Stepwise(ChunkedStream):
    """Yields what `step` makes of each element; what `step` raises takes a position.

    All elements must be looked at to know what follows, so passing them computes them.

    Args:
        context: of the pass.
        node: whose stream it is; one of the tree the context numbers.
        stream: the input.
    """

    def __init__(self, context: Context, node: Node, stream: Stream) -> None:
        self._node = node
        self._stream = stream
        self._keyed = Calls(context, node)
        self._block: Iterator[Any] = iter(())
        self._index = 0
        self._failure: Exception | None = None
        self._ended = False

    @abstractmethod
    def step(self, element: Any) -> Any:
        """What the element yields, SKIP or END; `stoker.random.generator` works in it.

        `_index` counts the input's positions so far, this one included.
        """

    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        chunk: list[Any] = []
        while not chunk:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._ended or not self._read(max_elements, max_bytes):
                break
            self._look_at_block(chunk, max_elements, max_bytes)
        return chunk

    def close(self) -> None:
        self._end()
        self._stream.close()

    def _end(self) -> None:
        self._ended = True
        self._block = iter(())
        self._failure = None

    def _read(self, max_elements: int, max_bytes: int) -> bool:
        """Have elements to look at; False at the input's end."""
        if length_hint(self._block):
            return True
        try:
            elements = self._stream.next_chunk(max_elements, max_bytes)
        except Exception:
            self._index += 1
            raise
        self._block = iter(elements)
        self._ended = not elements
        return bool(elements)

    def _look_at_block(self, chunk: list[Any], max_elements: int, max_bytes: int) -> None:
        """Add what the elements read yield, until it is enough or one fails."""
        deadline = time.perf_counter() + _CHUNK_SECONDS
        stop = self._index + length_hint(self._block)
        with self._keyed.over(self._block, stop) as elements:
            for element in elements:
                index = self._index
                self._index += 1
                try:
                    found = self.step(element)
                except Exception as error:  # noqa: BLE001 - raised at its position
                    origin = Origin(self._node.kind, self._node.site, index)
                    self._failure = mark_failure(error, origin)
                    return
                if found is END:
                    self._end()
                    return
                if found is not SKIP:
                    chunk.append(found)
                    max_bytes -= element_bytes(found)
                    if len(chunk) >= max_elements or max_bytes <= 0:
                        return
                if chunk and time.perf_counter() > deadline:
                    return
