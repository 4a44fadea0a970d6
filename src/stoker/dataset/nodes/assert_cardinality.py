"""assert_cardinality: a cardinality the user knows, checked where it is read."""

from typing import Any, ClassVar

from stoker.dataset.streams.stream import OneInputStream, Stream
from stoker.dataset.tree.node import INFINITE_CARDINALITY, Context, OneInput
from stoker.errors import FailedPreconditionError


class AssertCardinality(OneInput, frozen=True, eq=False, kw_only=True):
    """The elements, `expected` of them, without end if that is INFINITE_CARDINALITY.

    Where splits are handed out, each reader has a part, and nothing is checked.
    """

    kind: ClassVar[str] = "assert_cardinality"
    forwards_elements: ClassVar[bool] = True
    expected: int

    def cardinality(self) -> int:
        return self.expected

    def open(self, context: Context) -> Stream:
        stream = self.input.open(context)
        return stream if context.splits is not None else _CountedStream(stream, self.expected)


class _CountedStream(OneInputStream):
    """The input until it ends or exceeds `expected`; the error stands behind what was expected."""

    def __init__(self, stream: Stream, expected: int) -> None:
        super().__init__(stream)
        self._expected = expected
        self._passed = 0
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
            self._passed += 1
            raise
        self._passed += len(chunk)
        if not chunk:
            self._check_end(ended=True)
        return chunk

    def advance(self, n: int) -> int:
        if self._checked:
            return 0
        wanted = self._left(n)
        passed = self._input.advance(wanted)
        self._passed += passed
        if passed == n:
            return n
        try:
            self._check_end(ended=passed < wanted)
        except FailedPreconditionError:
            return passed + 1
        return passed

    def _left(self, n: int) -> int:
        if self._expected == INFINITE_CARDINALITY:
            return n
        return min(n, self._expected - self._passed)

    def _check_end(self, *, ended: bool = False) -> None:
        self._checked = True
        if not ended:
            ended = self._input.advance(1) == 0
        if self._passed == self._expected and ended:
            return
        expected = "an infinite number of" if self._expected < 0 else self._expected
        actual = f"only {self._passed}" if ended else f"at least {self._passed + 1}"
        raise FailedPreconditionError(
            f"the dataset was expected to contain {expected} elements but contained {actual}; "
            "correct the number given to assert_cardinality"
        )
