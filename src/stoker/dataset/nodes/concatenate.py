"""concatenate: the elements of several datasets, dataset after dataset."""

from typing import Any, ClassVar

from stoker.dataset.nodes.repeat import is_exact
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Context, Node
from stoker.elements.common_spec import common_spec
from stoker.elements.spec import Spec


class Concatenate(Node, frozen=True, eq=False, kw_only=True):
    """Yields the elements of the inputs in order; an input is opened when reading reaches it."""

    kind: ClassVar[str] = "concatenate"
    sums_inputs: ClassVar[bool] = True
    forwards_elements: ClassVar[bool] = True
    parts: tuple[Node, ...]

    def element_spec(self) -> Spec:
        spec = self.parts[0].element_spec()
        for part in self.parts[1:]:
            spec = common_spec(spec, part.element_spec())
        return spec

    def cardinality(self) -> int:
        counts = [part.cardinality() for part in self.parts]
        if INFINITE_CARDINALITY in counts:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in counts else sum(counts)

    def open(self, context: Context) -> Stream:
        return _ConcatenateStream(self.parts, context)


class _ConcatenateStream(Stream):
    def __init__(self, parts: tuple[Node, ...], context: Context) -> None:
        self._parts = parts
        self._context = context
        self._at = 0
        self._input: Stream | None = None

    def _open(self) -> Stream | None:
        """Return the stream of the current part, or ``None`` at the end."""
        if self._input is None and self._at < len(self._parts):
            part = self._parts[self._at]
            self._at += 1
            self._input = self._context.open(part)
        return self._input

    def _end_part(self) -> None:
        if self._input is not None:
            self._input.close()
            self._input = None

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        while (stream := self._open()) is not None:
            if chunk := stream.next_chunk(max_elements, max_bytes, lazy):
                return chunk
            self._end_part()
        return []

    def advance(self, n: int) -> int:
        left = n
        while left:
            left -= self._skip_whole_parts(left)
            stream = self._open() if left else None
            if stream is None:
                break
            skipped = stream.advance(left)
            if skipped < left:
                self._end_part()
            left -= skipped
        return n - left

    def _skip_whole_parts(self, n: int) -> int:
        """Skip parts of known length without opening; return the number of positions."""
        skipped = 0
        if self._input is not None or self._context.splits is not None:
            return 0
        while self._at < len(self._parts):
            part = self._parts[self._at]
            length = part.cardinality()
            if not 0 <= length <= n - skipped or not is_exact(part):
                break
            skipped += length
            self._at += 1
        return skipped

    def close(self) -> None:
        self._at = len(self._parts)
        self._end_part()
