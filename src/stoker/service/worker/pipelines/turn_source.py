"""The turns of a pipeline: asked for one by one, and read again by a stream that is opened anew."""

import threading
from collections import deque
from collections.abc import Callable, Iterator


class TurnSource:
    """Supplies the stream of a pipeline with turns; it knows which positions are not delivered.

    The stream reads turns on any of its threads. One that ends, as after `sys.exit` in a user's
    function, is replaced by another, which begins at the first position that was not delivered.

    Args:
        need: asks for a turn; `give` answers, perhaps before `need` returns.
    """

    def __init__(self, need: Callable[[], None]) -> None:
        self._need = need
        self._changed = threading.Condition()
        self._is_asked = False
        self._is_closed = False
        self._reader = 0
        """The number of the present stream."""
        self._begun: deque[range] = deque()
        """Turns that are not delivered as a whole; what is left of each."""
        self._delivered = 0
        """The number of turns before these."""

    def open(self) -> Iterator[range]:
        """Return the turns of a new stream; those of the stream before it end."""
        with self._changed:
            self._reader += 1
            self._changed.notify_all()
            return self._turns(self._reader, self._delivered)

    def _turns(self, reader: int, index: int) -> Iterator[range]:
        while (turn := self._turn(reader, index)) is not None:
            yield turn
            index += 1

    def _turn(self, reader: int, index: int) -> range | None:
        if self._must_ask(reader, index):
            self._need()
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended(reader) or self._has(index))
            return None if self._has_ended(reader) else self._begun[index - self._delivered]

    def _must_ask(self, reader: int, index: int) -> bool:
        with self._changed:
            if self._is_asked or self._has_ended(reader) or self._has(index):
                return False
            self._is_asked = True
            return True

    def _has(self, index: int) -> bool:
        return index < self._delivered + len(self._begun)

    def _has_ended(self, reader: int) -> bool:
        return self._is_closed or reader != self._reader

    def give(self, turn: range) -> None:
        """Answer the last `need`; from any thread."""
        with self._changed:
            self._is_asked = False
            self._begun.append(turn)
            self._changed.notify_all()

    @property
    def next_position(self) -> int | None:
        """The first position that is not delivered; ``None`` if the stream has begun no other."""
        with self._changed:
            return self._begun[0][0] if self._begun else None

    def delivered(self, count: int) -> None:
        """Count the next positions of a turn as delivered."""
        with self._changed:
            if rest := self._begun.popleft()[count:]:
                self._begun.appendleft(rest)
            else:
                self._delivered += 1

    def close(self) -> None:
        """End the turns; from any thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
