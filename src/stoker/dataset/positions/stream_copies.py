"""Copies of a stream of row numbers at intervals, from which rows are drawn again."""

from stoker.dataset.streams.stream import Stream

# Drawing the rows of an interval, of 64 blocks of 8,192 rows, takes 5 to 25 ms.
_FIRST_INTERVAL = 64

# 256 copies are enough for 1.3e8 rows. A copy of a shuffle has its buffer, of 8 bytes a row.
_MOST_COPIES = 256
_MOST_BYTES = 64 << 20


class StreamCopies:
    """Copies of a stream before some blocks of its rows.

    If copies are too many or too large, every second copy is dropped, and so on.
    """

    def __init__(self) -> None:
        self._interval = _FIRST_INTERVAL
        self._copies: dict[int, Stream] = {}
        self._bytes = 0

    def next_after(self, block: int) -> int:
        """Return the first block after `block` for which a copy is kept."""
        return (block // self._interval + 1) * self._interval

    def nearest(self, block: int) -> tuple[int, Stream] | None:
        """Return the last copy before a block or at it, and the block that it reads next."""
        at = max((each for each in self._copies if each <= block), default=None)
        return None if at is None else (at, self._copies[at])

    def keep(self, block: int, stream: Stream) -> None:
        """Keep a copy of a stream that reads `block` next, if it is one of those to keep."""
        if block % self._interval or block in self._copies:
            return
        size = stream.copy_bytes()
        if size > _MOST_BYTES:
            return
        self._copies[block] = stream.copy()
        self._bytes += size
        while len(self._copies) > _MOST_COPIES or self._bytes > _MOST_BYTES:
            self._interval *= 2
            for each in [each for each in self._copies if each % self._interval]:
                self._bytes -= self._copies.pop(each).copy_bytes()
