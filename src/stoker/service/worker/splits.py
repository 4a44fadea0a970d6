"""A worker's side of handing out splits: asked for ahead, begun only when needed (DESIGN.md §3)."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from stoker.service.messages import SplitGrant, SplitRequest

LOOKAHEAD_SECONDS = 0.05
"""Splits are begun about so far ahead of their reading. The notice's round trip takes 1 to 2 ms on
an idle worker, up to 20 ms where the pipeline holds the GIL. What is begun is lost with the worker,
so no further."""

BATCH_SECONDS = 0.002
"""Less than this is not worth a round trip of its own, even near the end of a pass."""

MAX_RANGES_AHEAD, MAX_AHEAD = 1024, 64
"""The most splits begun ahead, of an index source and of a listed one. A range of a million ints is
read in splits of 244, 80 us each; files that are read side by side seem to take no time at all."""

GROWTH = 4
"""So many times as many ranges are begun ahead as before, at most: one that was read quickly says
little of the next."""


@dataclass
class SplitQueue:
    """The splits of one pass over one source, for one task.

    A split goes from `assigned` (others may still get it) over `beginning` (notice given) to
    `begun` (acknowledged: nobody else ever reads it), and then to the source.

    Attributes:
        indexed: splits are ranges, and neighbours are handed to the source as one.
        ended: the dispatcher said that there are no more.
        asked: it was asked for more and has not answered.
        needed: the source waits.
        opened: the source has asked for a split.
        ahead: how many splits are begun before the source asks for them.
    """

    task_id: int
    source: int
    source_epoch: int
    indexed: bool = False
    assigned: deque[tuple[int, Any]] = field(default_factory=deque)
    beginning: dict[int, Any] = field(default_factory=dict)
    begun: deque[Any] = field(default_factory=deque)
    ended: bool = False
    asked: bool = False
    needed: bool = False
    opened: bool = False
    ahead: int = 1
    _reading_time: float = LOOKAHEAD_SECONDS
    _given: tuple[float, int] | None = None

    def need(self, now: float) -> SplitRequest | None:
        """The source wants a split; `take` answers. Returns what to say to the dispatcher."""
        self.needed = self.opened = True
        if self._given is not None:
            at, splits = self._given
            self._pace((now - at) / splits)
            self._given = None
        return self.ask()

    def _pace(self, seconds: float) -> None:
        """A split was read in so many seconds; that a range was quick is believed at once."""
        self._reading_time += (seconds - self._reading_time) / 2
        most = MAX_AHEAD
        if self.indexed:
            self._reading_time = min(seconds, self._reading_time)
            most = min(MAX_RANGES_AHEAD, GROWTH * self.ahead)
        wanted = round(LOOKAHEAD_SECONDS / max(self._reading_time, 1e-6))
        self.ahead = max(1, min(most, wanted))

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
            want = self._want()
            self.asked = True
        if not begin and not want:
            return None
        return self._request(begin, want)

    def _want(self) -> int:
        return (GROWTH if self.indexed else 2) * self.ahead

    def _request(self, begin: list[int], want: int) -> SplitRequest:
        least = round(BATCH_SECONDS / max(self._reading_time, 1e-6))
        least = max(1, min(least, want))
        return SplitRequest(self.task_id, self.source, self.source_epoch, begin, want, least)

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
        return self.ask() if self.needed or self.ahead > 1 or not self.opened else None

    def take(self, now: float) -> list[Any] | None:
        """What to give the source: ``[split]``, or ``[]`` at the end; ``None``: nothing now."""
        if self.needed and self.begun:
            self.needed = False
            split, splits = self._next()
            self._given = now, splits
            return [split]
        if self.needed and self.ended and not self.beginning and not self.assigned:
            self.needed = False
            return []
        return None

    def _next(self) -> tuple[Any, int]:
        """What is read next and how many splits it is: neighbours, but a quarter of what is ahead.

        Of the rest, half may go before more is begun: an eighth of the time ahead at least, and a
        whole round trip less often than with every split.
        """
        split = self.begun.popleft()
        splits = 1
        if self.indexed:
            start, stop = split
            while splits < self.ahead // 4 and self.begun and self.begun[0][0] == stop:
                stop = self.begun.popleft()[1]
                splits += 1
            split = start, stop
        return split, splits

    def reattach(self) -> SplitRequest | None:
        """The session was broken and is back: notices may be lost, assignments are taken back."""
        self.assigned.clear()
        self.asked = not self.ended
        want = 0 if self.ended else self._want()
        if not self.beginning and not want:
            return None
        return self._request(list(self.beginning), want)
