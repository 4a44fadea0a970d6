"""A stream that reads several streams, one after another."""

from abc import abstractmethod
from typing import Any

from stoker.dataset.streams.stream import DISCARDED_BYTES, Stream


class SequenceStream(Stream):
    """Yields the elements of the streams that `_open_next` opens, each to its end."""

    def __init__(self) -> None:
        self._current: Stream | None = None

    @abstractmethod
    def _open_next(self, max_elements: int, max_bytes: int, lazy: bool) -> Stream | None:
        """Open the next stream; return None at the end. An error takes a position.

        The arguments are those of `next_chunk`.
        """

    def _skip_unopened(self, n: int) -> int:
        """Pass streams of `n` positions or fewer without opening; return their positions."""
        return 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        while (stream := self._opened(max_elements, max_bytes, lazy)) is not None:
            if chunk := stream.next_chunk(max_elements, max_bytes, lazy):
                return chunk
            self._close_current()
        return []

    def advance(self, n: int) -> int:
        left = n
        while left > 0:
            if self._current is None:
                left -= self._skip_unopened(left)
            try:
                stream = self._opened(left, DISCARDED_BYTES, False) if left else None
            except Exception:  # noqa: BLE001 - an error of opening is the position that is skipped
                left -= 1
                continue
            if stream is None:
                break
            skipped = stream.advance(left)
            if skipped < left:
                self._close_current()
            left -= skipped
        return n - left

    def close(self) -> None:
        self._close_current()

    def _opened(self, max_elements: int, max_bytes: int, lazy: bool) -> Stream | None:
        if self._current is None:
            self._current = self._open_next(max_elements, max_bytes, lazy)
        return self._current

    def _close_current(self) -> None:
        # Removed first: `close` may come from another thread, and closes the stream once.
        current, self._current = self._current, None
        if current is not None:
            current.close()
