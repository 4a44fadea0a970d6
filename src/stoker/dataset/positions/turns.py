"""Wanted positions of a stream: the ranges that its source reads, and what was not yielded yet."""

from collections import deque
from collections.abc import Iterator, Sequence

from stoker.dataset.positions.arithmetic import Step, source_ranges
from stoker.dataset.positions.position_log import PositionLog
from stoker.dataset.tree.splits import SplitReader


class Turns(SplitReader):
    """Supplies the source of a running stream with the ranges of turns.

    The source may run on another thread than the reader of the stream.

    Args:
        turns: ranges of positions of the root; may block.
        steps: of `steps_below` of the root.
        last: position after which a stream ends, and later turns need a new one; ``None``: none.

    Attributes:
        log: of the running stream, which begins with an empty log.
        has_more: the turn of the last range has further ranges, so that the next does not block.
    """

    def __init__(self, turns: Iterator[range], steps: Sequence[Step], last: int | None) -> None:
        self._turns = turns
        self._steps = steps
        self._last = last
        self.log = PositionLog({})
        self.has_more = False
        self._next: range | None = None
        # Turns that the source has begun, each with the number of elements before it in the log.
        self._begun: deque[tuple[range, int]] = deque()
        self._left = range(0)

    def open(self, source: int) -> Iterator[range]:
        """Yield the positions in the source, until a turn with the last position."""
        log = self.log
        while self.wait():
            turn, self._next = self._next, None
            assert turn is not None
            self._begun.append((turn, log.count))
            ranges = [each for each in source_ranges(self._steps, turn) if each]
            for left, positions in zip(range(len(ranges) - 1, -1, -1), ranges, strict=True):
                self.has_more = left > 0
                log.add(positions)
                yield positions
            if turn[-1] == self._last:
                return

    def wait(self) -> bool:
        """Wait for the next turn; return False at the end."""
        while not self._next:
            self._next = next(self._turns, None)
            if self._next is None:
                self._turns = iter(())  # later calls find the end, too
                return False
        return True

    def left(self) -> range:
        """Return the positions of the first begun turn that were not yielded."""
        if not self._left and self._begun:
            self._left, before = self._begun.popleft()
            self.log.forget(before)
        return self._left

    def take(self, count: int) -> range:
        """Count positions as yielded; return them."""
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def close(self) -> None:
        """Begin no further turn; from any thread."""
        self._turns = iter(())
