"""The turns that a client has asked of one worker, and the worker's measured speed."""

import math

from stoker.service.client.wants.spans import Span, Spans

MEMORY_SECONDS = 0.5
"""Time constant of the measured speed."""


class WorkerTurns:
    """What one worker is asked for, and how fast it answers.

    Attributes:
        wanted: the elements that were asked of it and have not arrived from it.
        cancelled: those of which it has not been notified that they are not wanted any more.
        turn: the number of elements of the latest turn.
        since: the time since which it computes what is wanted, without an answer.
        seconds: its time per element; ``None`` before its first answer.
        doubted: it was late and has not answered since: it gets no turns.
        probe: it is asked for one element far ahead, to learn its speed.
        loading: it has reported that it loads the functions.
    """

    def __init__(self) -> None:
        self.wanted = Spans()
        self.cancelled: list[Span] = []
        self.turn = 1
        self.since = 0.0
        self.seconds: float | None = None
        self.doubted = self.probe = self.loading = False
        self._samples = 0
        self._elements = self._busy = 0.0

    @property
    def ready(self) -> bool:
        """True if another turn may be asked of it: two are enough to keep it busy."""
        most = 0 if self.seconds is None else self.turn
        return self.wanted.count <= most and not self.doubted

    def finish(self, elements: int, now: float) -> float:
        """Return the seconds in which it should answer these elements after all that is wanted."""
        seconds = self.seconds or 0.0
        left = max(0.0, self.since + self.wanted.count * seconds - now)
        return left + elements * seconds

    def ask(self, start: int, stop: int, now: float) -> None:
        """Record a turn that is asked of it."""
        if not self.wanted:
            self.since = now
        self.wanted.add(start, stop)
        self.turn = stop - start

    def drop(self, start: int, stop: int) -> list[Span]:
        """Record that elements are not wanted of it any more; return those that were."""
        return self.wanted.remove(start, stop)

    def answered(self, elements: int, now: float) -> None:
        """Measure the time of elements that have arrived."""
        busy, self.since = now - self.since, now
        self.doubted = self.probe = self.loading = False
        # The first answer comes after the pipeline was opened: it says little about the next.
        kept = 0.0 if self._samples < 2 else math.exp(-busy / MEMORY_SECONDS)
        self._samples += 1
        self._elements = kept * self._elements + elements
        self._busy = kept * self._busy + busy
        self.seconds = max(self._busy / self._elements, 1e-9)
