"""take, take_while and skip: the beginning of a dataset, and what is behind it."""

from collections.abc import Callable
from typing import Any, ClassVar

from stoker.dataset.pickled import Pickled
from stoker.dataset.streams.stepwise import END, Stepwise
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, Node
from stoker.dataset.unpacking import apply
from stoker.elements.spec import Spec


class Take(Node, frozen=True, eq=False, kw_only=True):
    """The first `count` elements, all if `count` is -1."""

    kind: ClassVar[str] = "take"
    forwards_elements: ClassVar[bool] = True
    input: Node
    count: int

    def element_spec(self) -> Spec:
        return self.input.element_spec()

    def cardinality(self) -> int:
        whole = self.input.cardinality()
        if self.count < 0 or 0 <= whole <= self.count:
            return whole
        # An unknown number may be less than count.
        return self.count if whole != UNKNOWN_CARDINALITY or self.count == 0 else whole

    def open(self, context: Context) -> Stream:
        stream = self.input.open(context)
        return stream if self.count < 0 else _TakeStream(stream, self.count)


class _TakeStream(Stream):
    def __init__(self, stream: Stream, count: int) -> None:
        self._input = stream
        self._left = count

    def next(self) -> Any:
        if self._left <= 0:
            raise StopIteration
        self._left -= 1
        return self._input.next()

    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        if self._left <= 0:
            return []
        self._left -= 1  # an error takes a position too
        chunk = self._input.next_chunk(min(max_elements, self._left + 1), max_bytes)
        self._left -= len(chunk) - 1 if chunk else 0
        return chunk

    def advance(self, n: int) -> int:
        passed = self._input.advance(min(n, self._left)) if self._left > 0 else 0
        self._left -= passed
        return passed

    def close(self) -> None:
        self._input.close()


class TakeWhile(Node, frozen=True, eq=False, kw_only=True):
    """The elements before the first that the predicate does not accept."""

    kind: ClassVar[str] = "take_while"
    input: Node
    function: Pickled

    def element_spec(self) -> Spec:
        return self.input.element_spec()

    def cardinality(self) -> int:
        return 0 if self.input.cardinality() == 0 else UNKNOWN_CARDINALITY

    def open(self, context: Context) -> Stream:
        return _TakeWhileStream(context, self, self.input.open(context))


class _TakeWhileStream(Stepwise):
    def __init__(self, context: Context, node: TakeWhile, stream: Stream) -> None:
        super().__init__(context, node, stream)
        self._predicate: Callable[..., Any] = node.function.value

    def step(self, element: Any) -> Any:
        return element if apply(self._predicate, element) else END


class Skip(Node, frozen=True, eq=False, kw_only=True):
    """All but the first `count` elements, none if `count` is -1."""

    kind: ClassVar[str] = "skip"
    forwards_elements: ClassVar[bool] = True
    input: Node
    count: int

    def element_spec(self) -> Spec:
        return self.input.element_spec()

    def cardinality(self) -> int:
        whole = self.input.cardinality()
        if self.count < 0:
            return 0
        return max(0, whole - self.count) if whole >= 0 else whole

    def open(self, context: Context) -> Stream:
        stream = self.input.open(context)
        return _TakeStream(stream, 0) if self.count < 0 else _SkipStream(stream, self.count)


class _SkipStream(Stream):
    """Skips on the first read, so that opening stays cheap."""

    def __init__(self, stream: Stream, count: int) -> None:
        self._input = stream
        self._to_skip = count

    def _skip(self) -> None:
        if self._to_skip:
            count, self._to_skip = self._to_skip, 0
            self._input.advance(count)

    def next(self) -> Any:
        if self._to_skip:
            self._skip()
        return self._input.next()

    def next_chunk(self, max_elements: int, max_bytes: int) -> list[Any]:
        self._skip()
        return self._input.next_chunk(max_elements, max_bytes)

    def advance(self, n: int) -> int:
        self._skip()
        return self._input.advance(n)

    def close(self) -> None:
        self._input.close()
