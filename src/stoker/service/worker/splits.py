"""A worker's side of handing out splits: asked for ahead, begun only when needed (DESIGN.md §3)."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from stoker.service.messages import SplitGrant, SplitRequest

LOOKAHEAD_SECONDS = 0.02
"""Splits are begun about so far ahead of their reading, to cover the notice's round trip. What is
begun is lost with the worker, so no further."""

MAX_AHEAD = 64
"""The most splits begun ahead; with 4,096 splits a source, a few dozen notices a pass."""


@dataclass
class SplitQueue:
    """The splits of one pass over one source, for one task.

    A split goes from `assigned` (others may still get it) over `beginning` (notice given) to
    `begun` (acknowledged: nobody else ever reads it), and then to the source.

    Attributes:
        ended: the dispatcher said that there are no more.
        asked: it was asked for more and has not answered.
        needed: the source waits.
        ahead: how many splits are begun before the source asks for them.
    """

    task_id: int
    source: int
    repetition: int
    assigned: deque[tuple[int, Any]] = field(default_factory=deque)
    beginning: dict[int, Any] = field(default_factory=dict)
    begun: deque[Any] = field(default_factory=deque)
    ended: bool = False
    asked: bool = False
    needed: bool = False
    ahead: int = 1
    _reading_time: float = LOOKAHEAD_SECONDS
    _given_at: float | None = None

    def need(self, now: float) -> SplitRequest | None:
        """The source wants a split; `take` answers. Returns what to say to the dispatcher."""
        self.needed = True
        if self._given_at is not None:
            self._reading_time += (now - self._given_at - self._reading_time) / 2
            wanted = LOOKAHEAD_SECONDS / max(self._reading_time, 1e-6)
            self.ahead = max(1, min(MAX_AHEAD, round(wanted)))
            self._given_at = None
        return self.ask()

    def ask(self) -> SplitRequest | None:
        """Gives notice of what is read next, and asks for more, if it is time to."""
        begin = []
        if len(self.begun) + len(self.beginning) <= self.ahead // 2:
            while self.assigned and len(self.begun) + len(self.beginning) < self.ahead:
                number, value = self.assigned.popleft()
                self.beginning[number] = value
                begin.append(number)
        want = 0
        if len(self.assigned) < self.ahead and not self.asked and not self.ended:
            want = 2 * self.ahead
            self.asked = True
        if not begin and not want:
            return None
        return SplitRequest(self.task_id, self.source, self.repetition, begin, want)

    def granted(self, grant: SplitGrant) -> SplitRequest | None:
        """The dispatcher answered. Returns what to say next."""
        for number in grant.begun:
            if number in self.beginning:
                self.begun.append(self.beginning.pop(number))
        for number in grant.refused:
            self.beginning.pop(number, None)
        if grant.splits or grant.end:
            self.asked = False
        self.assigned.extend(grant.splits)
        self.ended = self.ended or grant.end
        return self.ask() if self.needed else None

    def take(self, now: float) -> list[Any] | None:
        """What to give the source: ``[split]``, or ``[]`` at the end; ``None``: nothing now."""
        if self.needed and self.begun:
            self.needed = False
            self._given_at = now
            return [self.begun.popleft()]
        if self.needed and self.ended and not self.beginning and not self.assigned:
            self.needed = False
            return []
        return None

    def reattach(self) -> SplitRequest | None:
        """The session was broken and is back: notices may be lost, assignments are taken back."""
        self.assigned.clear()
        self.asked = not self.ended
        want = 0 if self.ended else 2 * self.ahead
        if not self.beginning and not want:
            return None
        return SplitRequest(self.task_id, self.source, self.repetition, list(self.beginning), want)
