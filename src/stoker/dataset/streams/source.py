"""Streams of sources: ranges of an index source, values of a listed source."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stoker.dataset.streams.rows.row_numbers import RowNumbers
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node


class IndexStream(Stream):
    """Reads an index source: all elements, or its assigned ranges in order.

    Args:
        context: the context of the source.
        node: the source.
        count: number of elements of the source.
        element_bytes: approximate size of an element.
        read: returns the elements of a range ``(start, stop)`` as a list; not called with
            `Context.as_rows`.
    """

    def __init__(
        self,
        context: Context,
        node: Node,
        count: int,
        element_bytes: int,
        read: Callable[[int, int], list[Any]],
    ) -> None:
        self._position = 0
        self._stop = count
        self._read = _row_numbers if context.as_rows else read
        self._element_bytes = max(1, element_bytes)
        self._runs: Iterator[Any] = iter(())
        if context.splits is not None:
            self._stop = 0
            self._runs = context.splits.open(context.numbers[node])

    def _next_run(self) -> bool:
        """Move to the next range that is not empty; may block."""
        while self._position >= self._stop:
            run = next(self._runs, None)
            if run is None:
                self._runs = iter(())  # later calls find the end, too
                return False
            self._position, self._stop = run
        return True

    def _take(self, most: int) -> list[Any]:
        start = self._position
        # `close`, which another thread may call, sets an earlier stop.
        self._position = max(start, min(self._stop, start + most))
        return self._read(start, self._position)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._position >= self._stop and not self._next_run():
            return []
        return self._take(max(1, min(max_elements, max_bytes // self._element_bytes)))

    def advance(self, n: int) -> int:
        left = n
        while left and (self._position < self._stop or self._next_run()):
            step = min(left, self._stop - self._position)
            self._position += step
            left -= step
        return n - left

    def close(self) -> None:
        """End the stream, so that a node that searches the stream ends, too."""
        self._stop = 0
        self._runs = iter(())


def _row_numbers(start: int, stop: int) -> Any:
    return RowNumbers((range(start, stop),))


class ListedStream(Stream):
    """Reads a listed source: all its values, or the assigned ones.

    Args:
        context: the context of the source.
        node: the source.
        list_all: lists all values; called at the first read and only without splits. An error is
            the only position of the stream.
    """

    def __init__(self, context: Context, node: Node, list_all: Callable[[], Iterable[Any]]) -> None:
        self._whole = context.splits is None
        self._list_all: Callable[[], Iterable[Any]] | None = list_all
        self._values: Iterator[Any] = iter(())
        if context.splits is not None:
            self._values = context.splits.open(context.numbers[node])
            self._list_all = None

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._list_all is not None:
            list_all, self._list_all = self._list_all, None
            self._values = iter(list_all())
        if not self._whole:
            max_elements = 1  # waiting for the next split may block
        chunk: list[Any] = []
        for value in self._values:
            chunk.append(value)
            max_bytes -= len(value)
            if len(chunk) >= max_elements or max_bytes <= 0:
                return chunk
        self._values = iter(())  # later calls find the end, too
        return chunk
