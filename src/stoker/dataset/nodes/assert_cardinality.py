"""assert_cardinality: a cardinality that the user declares and reading checks."""

from typing import Any, ClassVar

from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import INFINITE_CARDINALITY, Context, OneInput
from stoker.errors import FailedPreconditionError


class AssertCardinality(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields the input and checks for `expected` elements or INFINITE_CARDINALITY.

    If splits are assigned, each reader has a part of the elements, and nothing is checked.
    """

    kind: ClassVar[str] = "assert_cardinality"
    forwards_elements: ClassVar[bool] = True
    uncounted: ClassVar[str] = (
        "the cardinality of its input is another, or unknown; apply it after `distribute`"
    )
    expected: int

    def cardinality(self) -> int:
        return self.expected

    def input_positions(self) -> InputPositions | None:
        # Nothing is checked where parts are read: the cardinality must be known to be right.
        return InputPositions() if self.expected == self.input.cardinality() else None

    def open(self, context: Context) -> Stream:
        stream = context.open(self.input)
        # A task has a part of the elements, whose number nobody declared.
        return stream if context.splits is not None else _CountedStream(stream, self.expected)


class _CountedStream(OneInputStream):
    """Reads the input to its end or beyond `expected` elements; then raises the error."""

    def __init__(self, stream: Stream, expected: int) -> None:
        super().__init__(stream)
        self._expected = expected
        self._count = 0
        self._checked = False

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._checked:
            return []
        left = self._left(max_elements)
        if not left:
            self._check_end()
            return []
        try:
            chunk = self._input.next_chunk(left, max_bytes, lazy)
        except Exception:
            self._count += 1
            raise
        self._count += len(chunk)
        if not chunk:
            self._check_end(ended=True)
        return chunk

    def advance(self, n: int) -> int:
        if self._checked:
            return 0
        wanted = self._left(n)
        skipped = self._input.advance(wanted)
        self._count += skipped
        if skipped == n:
            return n
        try:
            self._check_end(ended=skipped < wanted)
        # The error has the position after the last element, which is skipped, too.
        except FailedPreconditionError:
            return skipped + 1
        return skipped

    def _left(self, n: int) -> int:
        if self._expected == INFINITE_CARDINALITY:
            return n
        return min(n, self._expected - self._count)

    def _check_end(self, *, ended: bool = False) -> None:
        self._checked = True
        if not ended:
            # Skipping a position shows that there are too many elements, and computes none.
            ended = self._input.advance(1) == 0
        if self._count == self._expected and ended:
            return
        expected = "an infinite number of elements"
        if self._expected >= 0:
            expected = _elements(self._expected)
        found = _elements(self._count if ended else self._count + 1)
        raise FailedPreconditionError(  # TensorFlow's words, then the remedy
            f"Input dataset was expected to contain {expected} but contained "
            f"{'only' if ended else 'at least'} {found}. Correct the argument of assert_cardinality"
        )


def _elements(count: int) -> str:
    return f"{count} element{'s' * (count != 1)}"
