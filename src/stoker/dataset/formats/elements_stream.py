"""Reading element files as one sequence: all of it, or ranges."""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from stoker.dataset.formats.elements_file import ElementsFile
from stoker.dataset.streams.stream import Stream
from stoker.elements.sizes import element_bytes
from stoker.errors import DataLossError


class ElementFilesStream(Stream):
    """The elements of several files, one file after the other; one chunk of one is in memory.

    What is damaged costs its own positions only: each raises DataLossError.

    Args:
        counts: how many elements each file holds.
        open_file: opens the file of this number; called when it is needed.
        ranges: ``(start, stop)`` of elements, numbered over all files; ``None``: all.
        opened: the first file, if it is open already.
    """

    def __init__(
        self,
        counts: Sequence[int],
        open_file: Callable[[int], ElementsFile],
        ranges: Iterator[tuple[int, int]] | None = None,
        opened: ElementsFile | None = None,
    ) -> None:
        self._firsts = [*accumulate(counts, initial=0)]
        self._open_file = open_file
        self._ranges = iter([(0, self._firsts[-1])]) if ranges is None else ranges
        self._at = self._stop = 0
        self._file = opened
        self._file_number = 0
        self._held: list[Any] = []
        self._held_first = self._held_stop = 0
        self._damage = ""
        self._closed = False
        self._lock = threading.Lock()  # `close` may come from another thread

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if not self._next_range():
            return []
        if not self._held_first <= self._at < self._held_stop and not self._load():
            return []
        if self._damage:
            self._at += 1
            raise DataLossError(self._damage)
        start = self._at - self._held_first
        fitting = max(1, max_bytes // element_bytes(self._held[start]))
        count = min(max_elements, fitting, self._stop - self._at, self._held_stop - self._at)
        self._at += count
        return self._held[start : start + count]

    def advance(self, n: int) -> int:
        left = n
        while left and self._next_range():
            step = min(left, self._stop - self._at)
            self._at += step
            left -= step
        return n - left

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._ranges = iter(())
            self._at = self._stop = 0
            self._close_file()

    def _next_range(self) -> bool:
        """Moves to the next range that is not empty; may block."""
        while self._at >= self._stop:
            found = next(self._ranges, None)
            if found is None:
                self._ranges = iter(())  # the end stays the end
                return False
            self._at, self._stop = found
        return True

    def _load(self) -> bool:
        """Decodes the chunk that holds the next element, or notes its damage; False if closed."""
        with self._lock:
            if self._closed:
                return False
            number = bisect_right(self._firsts, self._at) - 1
            first = self._firsts[number]
            bounds = first, self._firsts[number + 1]  # what is lost if the file cannot be opened
            self._damage, self._held = "", []
            try:
                file = self._open(number)
                chunk = file.chunk_at(self._at - first)
                bounds = tuple(first + bound for bound in file.bounds(chunk))  # type: ignore[assignment]
                self._held = file.read(chunk)
            except DataLossError as error:
                self._damage = str(error)
            except Exception:
                # Not the data's fault: the next position tries again.
                self._held_first = self._held_stop = 0
                self._at += 1
                raise
            self._held_first, self._held_stop = bounds
            return True

    def _open(self, number: int) -> ElementsFile:
        if self._file is None or self._file_number != number:
            self._close_file()
            file = self._open_file(number)
            self._file, self._file_number = file, number
            expected = self._firsts[number + 1] - self._firsts[number]
            if file.count != expected:
                raise DataLossError(
                    f"{file.name} holds {file.count} elements and not the {expected} that were "
                    "written; delete it and write it anew"
                )
        return self._file

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
