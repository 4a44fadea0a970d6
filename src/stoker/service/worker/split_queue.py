"""Splits on a worker: requested ahead of their reading, begun only when needed."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from stoker.service.messages import SplitGrant, SplitRequest

LOOKAHEAD_SECONDS = 0.05
"""Time between the announcement of a split and its reading. The round trip takes 1 to 2 ms on an
idle worker, up to 20 ms if the pipeline holds the GIL. Not longer, because begun splits are lost
with the worker."""

BATCH_SECONDS = 0.002
"""Shortest reading time that is worth a round trip, even near the end of an epoch."""

MAX_RANGES_AHEAD, MAX_AHEAD = 1024, 64
"""Most splits begun ahead, of an index source and of a listed one. A range of a million ints is
read in splits of 244, 80 us each; files that are interleaved seem to take no time at all."""

GROWTH = 4
"""Largest growth of the number of ranges begun ahead: one fast range predicts little."""


@dataclass
class SplitQueue:
    """The splits of one epoch of one source, for one task.

    A split goes from `assigned` (others may still get it) over `beginning` (announced) to `begun`
    (acknowledged: no other task ever reads it), and then to the source.

    Attributes:
        indexed: splits are ranges, and neighbours are given to the source as one.
        ended: the dispatcher has no more splits.
        cut: the worker drains and asks for no more, though there may be some.
        asked: a request for more is not answered yet.
        needed: the source waits.
        opened: the source has asked for a split.
        ahead: the number of splits to begin before the source asks for them.
    """

    task_id: int
    source: int
    source_epoch: int
    indexed: bool = False
    assigned: deque[tuple[int, Any]] = field(default_factory=deque)
    beginning: dict[int, Any] = field(default_factory=dict)
    begun: deque[Any] = field(default_factory=deque)
    ended: bool = False
    cut: bool = False
    asked: bool = False
    needed: bool = False
    opened: bool = False
    ahead: int = 1
    _reading_time: float = LOOKAHEAD_SECONDS
    _given: tuple[float, int] | None = None

    def drain(self) -> None:
        """Finish the splits begun or announced, and ask for no more."""
        self.assigned.clear()
        self.cut = not self.ended
        self.ended = True

    def need(self, now: float) -> SplitRequest | None:
        """Note that the source waits for a split; return a request for the dispatcher, if any."""
        self.needed = self.opened = True
        if self._given is not None:
            at, splits = self._given
            self._pace((now - at) / splits)
            self._given = None
        return self.ask()

    def _pace(self, seconds: float) -> None:
        """Adapt `ahead` to the `seconds` that one split took; fast ranges count immediately."""
        self._reading_time += (seconds - self._reading_time) / 2
        most = MAX_AHEAD
        if self.indexed:
            self._reading_time = min(seconds, self._reading_time)
            most = min(MAX_RANGES_AHEAD, GROWTH * self.ahead)
        wanted = round(LOOKAHEAD_SECONDS / max(self._reading_time, 1e-6))
        self.ahead = max(1, min(most, wanted))

    def ask(self) -> SplitRequest | None:
        """Announce the next splits and ask for more, if it is time to; return the request."""
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
        """Apply an answer of the dispatcher; return the next request, if any."""
        for number in grant.begun:
            if number in self.beginning:
                self.begun.append(self.beginning.pop(number))
        # Refused splits went to another task while this worker had no session.
        for number in grant.refused:
            self.beginning.pop(number, None)
        if grant.splits or grant.end:
            self.asked = False
        if not self.cut:
            # One that was given back may be granted before the answer to its announcement.
            self.assigned.extend(x for x in grant.splits if x[0] not in self.beginning)
        self.ended = self.ended or grant.end
        return self.ask() if self.needed or self.ahead > 1 or not self.opened else None

    def take(self, now: float) -> list[Any] | None:
        """Return ``[split]`` for the source, ``[]`` at the end, or ``None`` for nothing now."""
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
        """Return the next split with its neighbours, and their number: a quarter of `ahead`.

        More are begun when half of `ahead` is left: at least an eighth of the time ahead remains,
        and round trips are fewer than with single splits.
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

    def give_back(self) -> SplitRequest | None:
        """Give up the splits that are not announced; return the next request, if any."""
        self.assigned.clear()
        return self.ask()

    def reattach(self) -> SplitRequest | None:
        """Return the request for a new session: announcements may be lost, assignments are void."""
        self.assigned.clear()
        self.asked = not self.ended
        want = 0 if self.ended else self._want()
        if not self.beginning and not want:
            return None
        return self._request(list(self.beginning), want)
