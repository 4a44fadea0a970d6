"""prefetch: reads ahead on a thread."""

from collections import deque
from typing import Any, ClassVar

from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.streams.failures import Failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.threads import pool
from stoker.dataset.threads.readahead import ReadAhead
from stoker.dataset.threads.tuning import default_bytes
from stoker.dataset.tree.node import AUTOTUNE, Context, OneInput
from stoker.elements.sizes import element_bytes

# The initial and the largest size with AUTOTUNE; the largest hides any delay.
_FIRST_ELEMENTS = 4
_MOST_ELEMENTS = 1 << 16


class Prefetch(OneInput, frozen=True, eq=False, kw_only=True):
    """Reads up to `buffer_size` elements ahead on a dedicated thread.

    Attributes:
        buffer_size: elements; 0 reads nothing ahead. AUTOTUNE starts with 4 and doubles each time
            the consumer has emptied a full buffer, within `Options.autotune_bytes`.
    """

    kind: ClassVar[str] = "prefetch"
    forwards_elements: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    selects_rows: ClassVar[bool] = True
    tuning: ClassVar[frozenset[str]] = frozenset({"buffer_size"})
    buffer_size: int

    def input_positions(self) -> InputPositions:
        return InputPositions()

    def open(self, context: Context) -> Stream:
        stream = context.open(self.input)
        if self.buffer_size == 0 or context.as_rows:  # row numbers take no time to wait for
            return stream
        if self.buffer_size == AUTOTUNE:
            max_bytes = context.autotune_bytes or default_bytes(pool.available_cpus())
            return _PrefetchStream(stream, _FIRST_ELEMENTS, max_bytes)
        return _PrefetchStream(stream, self.buffer_size, None)


class _PrefetchStream(Stream):
    """A bounded buffer between the reading thread and the consumer.

    Args:
        stream: the input.
        max_elements: the most buffered elements.
        max_bytes: `max_elements` grows when needed while the elements take at most this size.
    """

    def __init__(self, stream: Stream, max_elements: int, max_bytes: int | None) -> None:
        self._stream = stream
        self._max_elements = max_elements
        self._max_bytes = max_bytes
        self._was_full = False
        self._buffer: deque[Any] = deque()
        self._bytes = 0
        self.work: Work = Work(threads=1)
        self._reader = ReadAhead(stream, self._room, self._accept, self.work)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy:
            max_elements = 1
        self._reader.start()
        taken: list[Any] = []
        buffer = self._buffer
        with self._reader.lock:
            self._await_something()
            while buffer and len(taken) < max_elements and max_bytes > 0:
                if isinstance(buffer[0], Failure):
                    if not taken:
                        raise self._pop().error
                    break
                item = self._pop()
                taken.append(item)
                # A single element is always returned, so its size is not measured.
                if max_elements > 1:
                    max_bytes -= element_bytes(item)
            if self._room() > 0:
                self._reader.wake()
        return taken

    def advance(self, n: int) -> int:
        # The reading thread must not read the elements that are skipped here.
        with self._reader.paused():
            with self._reader.lock:
                held = min(n, len(self._buffer))
                for _ in range(held):
                    self._pop()
                if held == n or self._reader.ended:
                    return held
            return held + self._stream.advance(n - held)

    def filled(self) -> float:
        return min(1.0, len(self._buffer) / self._max_elements)

    def close(self) -> None:
        self._reader.close()

    def _await_something(self) -> None:
        if not self._buffer:
            self._grow()
            if self._room() > 0:
                self._reader.wake()
        while not self._buffer and not self._reader.ended:
            self._reader.check_open()
            self._reader.arrived.wait()

    def _grow(self) -> None:
        """Grow the buffer, which is empty, if the input could have continued."""
        if self._was_full and self._max_bytes is not None:
            # The reader emptied a buffer that was full before: more elements might have hidden the
            # delay.
            self._max_elements = min(2 * self._max_elements, _MOST_ELEMENTS)
        self._was_full = False

    def _room(self) -> int:
        if self._max_bytes is not None and self._bytes >= self._max_bytes:
            return 0
        return 0 if self._is_full() else self._max_elements - len(self._buffer)

    def _is_full(self) -> bool:
        """Return whether enough elements are buffered that waking the thread does not pay."""
        # Waking the thread for each element costs more than reading a cheap element.
        refill = self._max_elements // 4 if self._max_elements > 8 else 1
        return self._max_elements - len(self._buffer) < refill

    def _accept(self, items: list[Any]) -> None:
        self._buffer.extend(items)
        if self._max_bytes is not None:
            self._bytes += sum(map(_item_bytes, items))
        self._was_full = self._was_full or self._is_full()

    def _pop(self) -> Any:
        item = self._buffer.popleft()
        if self._max_bytes is not None:
            self._bytes -= _item_bytes(item)
        return item


def _item_bytes(item: Any) -> int:
    return 0 if isinstance(item, Failure) else element_bytes(item)
