"""repeat: the input again and again."""

from typing import Any, ClassVar

from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Context,
    Node,
    OneInput,
    number,
)


class Repeat(OneInput, frozen=True, eq=False, kw_only=True):
    """The input `count` times over, without end if `count` is -1."""

    kind: ClassVar[str] = "repeat"
    forwards_elements: ClassVar[bool] = True
    count: int

    def cardinality(self) -> int:
        once = self.input.cardinality()
        if once == 0 or self.count == 0:
            return 0
        if self.count < 0:
            return INFINITE_CARDINALITY
        return once * self.count if once > 0 else once

    def open(self, context: Context) -> Stream:
        return _RepeatStream(self, context)


class _RepeatStream(Stream):
    def __init__(self, node: Repeat, context: Context) -> None:
        self._node = node
        self._context = context
        self._pass = 0
        self._input: Stream | None = None
        self._length = node.input.cardinality()
        self._skips_passes = context.splits is None and self._length > 0
        self._passed_something = False
        self._ended = self._length == 0

    def _open(self) -> Stream | None:
        """The pass being read, or ``None`` at the end."""
        if self._input is None and not self._ended:
            if 0 <= self._node.count <= self._pass:
                self._ended = True
                return None
            self._passed_something = False
            self._input = self._node.input.open(self._context.inner(self._pass))
        return self._input

    def _end_pass(self) -> None:
        if self._input is not None:
            self._input.close()
            self._input = None
        self._pass += 1
        # An endless repeat of nothing ends. With splits an empty pass says only that others
        # read it all, as in tf.data.
        if self._node.count < 0 and not self._passed_something and self._context.splits is None:
            self._ended = True

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        while (stream := self._open()) is not None:
            try:
                chunk = stream.next_chunk(max_elements, max_bytes, lazy)
            except Exception:
                self._passed_something = True
                raise
            if chunk:
                self._passed_something = True
                return chunk
            self._end_pass()
        return []

    def advance(self, n: int) -> int:
        left = n
        while left:
            left -= self._skip_whole_passes(left)
            stream = self._open() if left else None
            if stream is None:
                break
            passed = stream.advance(left)
            self._passed_something = self._passed_something or passed > 0
            if passed < left:
                self._end_pass()
            left -= passed
        return n - left

    def _skip_whole_passes(self, n: int) -> int:
        """Skips passes without opening them, where their length is known; returns the positions."""
        if self._input is not None or n < self._length or not self._skips_passes:
            return 0
        if not is_exact(self._node.input):
            self._skips_passes = False
            return 0
        passes = n // self._length
        if self._node.count >= 0:
            passes = min(passes, self._node.count - self._pass)
        self._pass += passes
        return passes * self._length

    def close(self) -> None:
        self._ended = True
        if self._input is not None:
            self._input.close()
            self._input = None


def is_exact(root: Node) -> bool:
    """Whether the cardinality is a fact: an endless repeat of nothing may say infinite too."""
    return all(node.cardinality() != UNKNOWN_CARDINALITY for node in number(root))
