"""Reading the splits of sources: the runs of an index source and the values of a listed one."""

from collections.abc import Callable, Iterator
from typing import Any

from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node


class IndexStream(Stream):
    """Reads an index source: all of it, or the ranges it is handed, back to back.

    Args:
        context: of the pass.
        node: the source.
        count: how many elements the source has.
        element_bytes: about the bytes of one element.
        read: the elements of a range ``(start, stop)``, as a list.
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
        self._read = read
        self._element_bytes = max(1, element_bytes)
        self._runs: Iterator[Any] = iter(())
        if context.splits is not None:
            self._stop = 0
            self._runs = context.splits.open(context.numbers[node])

    def _next_run(self) -> bool:
        """Moves to the next range that is not empty; may block."""
        while self._position >= self._stop:
            run = next(self._runs, None)
            if run is None:
                self._runs = iter(())  # the end stays the end
                return False
            self._position, self._stop = run
        return True

    def _take(self, most: int) -> list[Any]:
        start = self._position
        # `close`, which may come from another thread, puts the stop before it.
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
        """Ends the stream, so that a search through it that finds nothing ends too."""
        self._stop = 0
        self._runs = iter(())


class ListedStream(Stream):
    """Reads a listed source: all its values, or those it is handed.

    Args:
        context: of the pass.
        node: the source.
        list_all: makes the whole list; called on the first read and only without splits. If it
            raises, the error is the stream's only position.
    """

    def __init__(self, context: Context, node: Node, list_all: Callable[[], list[Any]]) -> None:
        self._whole = context.splits is None
        self._list_all: Callable[[], list[Any]] | None = list_all
        self._values: Iterator[Any] = iter(())
        if context.splits is not None:
            self._values = context.splits.open(context.numbers[node])
            self._list_all = None

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._list_all is not None:
            list_all, self._list_all = self._list_all, None
            self._values = iter(list_all())
        if not self._whole:
            max_elements = 1  # the next split may have to be waited for
        chunk: list[Any] = []
        for value in self._values:
            chunk.append(value)
            max_bytes -= len(value)
            if len(chunk) >= max_elements or max_bytes <= 0:
                return chunk
        self._values = iter(())  # the end stays the end
        return chunk
