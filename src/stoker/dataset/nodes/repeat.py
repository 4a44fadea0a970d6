"""repeat: several epochs of the input."""

import time
from typing import Any, ClassVar, Self

from stoker.dataset.streams.deadline import CHUNK_SECONDS
from stoker.dataset.streams.measure.recording import OpenedSampler
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Context,
    Node,
    OneInput,
    number,
)
from stoker.elements.sizes import chunk_bytes

# Empty repetitions in a row that an endless repeat of a shuffle passes.
_EMPTY_AFTER_SHUFFLE = 1000


class Repeat(OneInput, frozen=True, eq=False, kw_only=True):
    """Yields the input `count` times, without end if `count` is -1."""

    kind: ClassVar[str] = "repeat"
    sums_inputs: ClassVar[bool] = True
    forwards_elements: ClassVar[bool] = True
    selects_rows: ClassVar[bool] = True
    uncounted: ClassVar[str] = (
        "it repeats other elements than numbers and arrays in memory; apply it before `map`, if "
        "these are its input, or after `distribute`"
    )
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
        self._meters = OpenedSampler(context.meters)
        self._epoch = 0
        self._epochs_shared = 0
        self._input: Stream | None = None
        self._length = node.input.cardinality()
        self._can_skip_epochs = context.splits is None and self._length > 0
        self._yielded = False
        self._has_yielded = False
        self._empty_epochs = 0
        self._pending: Exception | None = None
        self._ended = self._length == 0

    def _open(self) -> Stream | None:
        """Return the stream of the current epoch, or ``None`` at the end."""
        if self._input is None and not self._ended:
            if 0 <= self._node.count <= self._epoch:
                self._ended = True
                return None
            self._yielded = False
            self._epochs_shared = self._context.statistics.count("epochs_shared")
            context = self._context.inner(self._epoch, self._meters.next())
            self._input = context.open(self._node.input)
        return self._input

    def _end_epoch(self) -> None:
        self._close_input()
        self._epoch += 1
        self._has_yielded = self._has_yielded or self._yielded
        self._empty_epochs = 0 if self._yielded else self._empty_epochs + 1
        # An endless repeat of an empty input ends, unless its elements are read elsewhere, as in
        # tf.data: by further tasks of the splits, or by further clients of a shared epoch.
        context = self._context
        shared = context.statistics.count("epochs_shared") > self._epochs_shared
        others_read = shared or (context.splits is not None and not context.splits.draining)
        if self._node.count < 0 and not self._yielded and not others_read:
            self._ended = self._empty_epochs > self._passable_empty_epochs()

    def _passable_empty_epochs(self) -> int:
        # tf.data fuses shuffle and repeat, which then passes empty repetitions after another,
        # without end: here a generator that is exhausted ends.
        passes = self._has_yielded and self._node.input.kind == "shuffle"
        return _EMPTY_AFTER_SHUFFLE if passes and self._context.splits is None else 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._pending is not None:
            error, self._pending = self._pending, None
            raise error
        began = time.perf_counter()
        chunk = self._next_chunk(max_elements, max_bytes, lazy)
        whole = bool(chunk) and len(chunk) == self._length
        # An epoch that depends on the dispatcher for splits may wait, and row numbers are no list.
        if lazy or not whole or self._context.splits is not None or type(chunk) is not list:
            return chunk
        most = min(max_elements, len(chunk) * (max_bytes // max(1, chunk_bytes(chunk))))
        return self._join_epochs(chunk, most, max_bytes, began)

    def _join_epochs(self, chunk: list[Any], most: int, max_bytes: int, began: float) -> list[Any]:
        """Return a chunk that is a whole epoch, with further epochs while there is time."""
        # A chunk for each repetition of a few cached elements would become a frame for each.
        joined = list(chunk)
        while len(joined) + len(chunk) <= most:
            elapsed = time.perf_counter() - began
            if elapsed * (1 + len(chunk) / len(joined)) > CHUNK_SECONDS:
                break
            try:
                more = self._next_chunk(len(chunk), max_bytes, False)
            except Exception as error:  # noqa: BLE001 - raised by the next call
                self._pending = error
                break
            if not more:
                break
            joined += more
        return joined

    def _next_chunk(self, max_elements: int, max_bytes: int, lazy: bool) -> list[Any]:
        while (stream := self._open()) is not None:
            try:
                chunk = stream.next_chunk(max_elements, max_bytes, lazy)
            except Exception:
                self._yielded = True
                raise
            if chunk:
                self._yielded = True
                return chunk
            self._end_epoch()
        return []

    def copy(self) -> Self:
        copied = super().copy()
        copied._input = None if self._input is None else self._input.copy()
        return copied

    def copy_bytes(self) -> int:
        return 0 if self._input is None else self._input.copy_bytes()

    def advance(self, n: int) -> int:
        left = n
        if left and self._pending is not None:
            self._pending = None  # the error's position is passed
            left -= 1
        while left:
            left -= self._skip_whole_epochs(left)
            stream = self._open() if left else None
            if stream is None:
                break
            skipped = stream.advance(left)
            self._yielded = self._yielded or skipped > 0
            if skipped < left:
                self._end_epoch()
            left -= skipped
        return n - left

    def _skip_whole_epochs(self, n: int) -> int:
        """Skip epochs of known length without opening; return the number of positions."""
        if self._input is not None or n < self._length or not self._can_skip_epochs:
            return 0
        if not is_exact(self._node.input):
            self._can_skip_epochs = False
            return 0
        # Epochs depend on their number, not on the epoch before, so whole epochs need no stream.
        epochs = n // self._length
        if self._node.count >= 0:
            epochs = min(epochs, self._node.count - self._epoch)
        self._epoch += epochs
        return epochs * self._length

    def close(self) -> None:
        self._ended = True
        self._close_input()

    def _close_input(self) -> None:
        if self._input is not None:
            self._input.close()
            self._input = None


def is_exact(root: Node) -> bool:
    """Return whether the cardinality is exact: an endless repeat of an empty input may not be."""
    return all(node.cardinality() != UNKNOWN_CARDINALITY for node in number(root))
