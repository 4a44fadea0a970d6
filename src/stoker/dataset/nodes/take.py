"""take, take_while and skip: the first elements of a dataset, or all later elements."""

from collections.abc import Callable
from typing import Any, ClassVar

from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.streams.stepwise import END, Stepwise
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY, Context, OneInput
from stoker.dataset.unpacking import apply


class Take(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields the first `count` elements, all if `count` is -1."""

    kind: ClassVar[str] = "take"
    forwards_elements: ClassVar[bool] = True
    selects_rows: ClassVar[bool] = True
    count: int

    def cardinality(self) -> int:
        whole = self.input.cardinality()
        if self.count < 0 or 0 <= whole <= self.count:
            return whole
        # An unknown cardinality may be less than count.
        return self.count if whole != UNKNOWN_CARDINALITY or self.count == 0 else whole

    def input_positions(self) -> InputPositions:
        return InputPositions()

    def open(self, context: Context) -> Stream:
        stream = context.open(self.input)
        return stream if self.count < 0 else _TakeStream(stream, self.count)


class _TakeStream(OneInputStream):
    def __init__(self, stream: Stream, count: int) -> None:
        super().__init__(stream)
        self._left = count

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        left = self._left
        if max_elements > left:
            if not left:
                return []
            max_elements = left
        self._left = left - 1  # an error takes a position too
        chunk = self._input.next_chunk(max_elements, max_bytes, lazy)
        self._left = left - len(chunk)
        return chunk

    def advance(self, n: int) -> int:
        passed = self._input.advance(min(n, self._left)) if self._left else 0
        self._left -= passed
        return passed


class TakeWhile(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields the elements before the first for which the predicate is false."""

    kind: ClassVar[str] = "take_while"
    function: Pickled

    def open(self, context: Context) -> Stream:
        return _TakeWhileStream(context, self, context.open(self.input))


class _TakeWhileStream(Stepwise):
    def __init__(self, context: Context, node: TakeWhile, stream: Stream) -> None:
        super().__init__(context, node, stream)
        self._predicate: Callable[..., Any] = node.function.value

    def step(self, element: Any) -> Any:
        return element if apply(self._predicate, element) else END


class Skip(OneInput, frozen=True, eq=False, kw_only=True):
    """Skips the first `count` elements, all if `count` is -1."""

    kind: ClassVar[str] = "skip"
    forwards_elements: ClassVar[bool] = True
    selects_rows: ClassVar[bool] = True
    count: int

    def cardinality(self) -> int:
        whole = self.input.cardinality()
        if self.count < 0:
            return 0
        return max(0, whole - self.count) if whole >= 0 else whole

    def input_positions(self) -> InputPositions:
        return InputPositions(offset=max(0, self.count))

    def open(self, context: Context) -> Stream:
        stream = context.open(self.input)
        return _TakeStream(stream, 0) if self.count < 0 else _SkipStream(stream, self.count)


class _SkipStream(OneInputStream):
    """Skips at the first read, so that opening is cheap."""

    def __init__(self, stream: Stream, count: int) -> None:
        super().__init__(stream)
        self._to_skip = count

    def _skip(self) -> None:
        if self._to_skip:
            count, self._to_skip = self._to_skip, 0
            self._input.advance(count)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        self._skip()
        return self._input.next_chunk(max_elements, max_bytes, lazy)

    def advance(self, n: int) -> int:
        self._skip()
        return self._input.advance(n)
