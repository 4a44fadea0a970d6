"""enumerate: elements with their positions."""

from typing import Any, ClassVar

import numpy as np

from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.elements.spec import Spec, TensorSpec


class Enumerate(Node, frozen=True, eq=False, kw_only=True):
    """Pairs of a position, from `start`, and the element there; an error has one too."""

    kind: ClassVar[str] = "enumerate"
    forwards_elements: ClassVar[bool] = True
    input: Node
    start: int = 0

    def element_spec(self) -> Spec:
        return (TensorSpec((), np.int64), self.input.element_spec())

    def cardinality(self) -> int:
        return self.input.cardinality()

    def inputs_per_element(self) -> int:
        return 1

    def open(self, context: Context) -> Stream:
        return _EnumerateStream(self.input.open(context), self.start)


class _EnumerateStream(Stream):
    def __init__(self, stream: Stream, start: int) -> None:
        self._input = stream
        self._position = start

    def next(self) -> Any:
        self._position += 1
        return (self._position - 1, self._input.next())

    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        position = self._position
        self._position += 1  # an error takes a position too
        chunk = self._input.next_chunk(max_elements, max_bytes)
        self._position = position + len(chunk)
        return list(zip(range(position, self._position), chunk, strict=True))

    def advance(self, n: int) -> int:
        passed = self._input.advance(n)
        self._position += passed
        return passed

    def close(self) -> None:
        self._input.close()
