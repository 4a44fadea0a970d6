"""Splits on a worker: requested ahead of their reading, begun only when needed."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from stoker.service.messages import SplitGrant, SplitRequest
from stoker.service.worker.tasks.round_trip import LOOKAHEAD_SECONDS, RoundTrip

BATCH_SECONDS = 0.002
"""Shortest reading time that is worth a round trip, even near the end of an epoch; a longer round
trip is worth as much reading time as it takes."""

MAX_RANGES_AHEAD, MAX_AHEAD = 4096, 64
"""Most splits begun ahead, of an index source and of a listed one. A range of a million ints is
read in splits of 244, 80 us each; files that are interleaved seem to take no time at all."""

GROWTH = 4
"""Largest growth of the number of ranges begun ahead: one fast range predicts little."""

STALL_SHARE = 1 / 32
"""Part of its reading time that a source may wait for each split. A split that takes longer is not
begun ahead: it would be lost with the worker, and others could not read it."""


@dataclass
class SplitQueue:
    """The splits of one epoch of one source, for one task.

    A split goes from `assigned` (others may still get it) over `beginning` (announced) to `begun`
    (acknowledged: no other task ever reads it), and then to the source.

    Attributes:
        indexed: splits are ranges, and neighbours are given to the source as one.
        round_trip: the time that an announcement takes, measured.
        ended: the dispatcher has no more splits.
        cut: the worker drains and asks for no more, though there may be some.
        asked: a request for more is not answered yet.
        needed: the source waits.
        opened: the source has asked for a split.
        ahead: the number of splits to begin ahead; with 1, the next one is begun shortly before the
            source asks for it (`look_ahead`).
        on_demand: ask when the source waits, and announce all that is assigned. In a coordinated
            read all wait for the task whose turn it is: what it waits for must not lie idle with
            the others, which begin it or never get it.
    """

    task_id: int
    source: int
    source_epoch: int
    indexed: bool = False
    round_trip: RoundTrip = field(default_factory=RoundTrip)
    assigned: deque[tuple[int, Any]] = field(default_factory=deque)
    beginning: dict[int, Any] = field(default_factory=dict)
    begun: deque[Any] = field(default_factory=deque)
    ended: bool = False
    cut: bool = False
    asked: bool = False
    needed: bool = False
    opened: bool = False
    ahead: int = 1
    on_demand: bool = False
    _reading_time: float = LOOKAHEAD_SECONDS
    _deviation: float = 0.0
    _paced: bool = False
    _given: tuple[float, int] | None = None
    _measured: tuple[int, float] | None = None

    def drain(self) -> None:
        """Finish the splits begun or announced, and ask for no more."""
        self.assigned.clear()
        self.cut = not self.ended
        self.ended = True

    def need(self, now: float) -> SplitRequest | None:
        """Note that the source waits for a split; return a request for the dispatcher, if any.

        If a split is begun, `take` returns it, and `look_ahead` the request.
        """
        self.needed = self.opened = True
        if self._given is not None:
            at, splits = self._given
            self._pace((now - at) / splits)
            self._given = None
        return None if self.begun else self.ask(now)

    def _pace(self, seconds: float) -> None:
        """Adapt `ahead` to the `seconds` that one split took; fast ranges count immediately."""
        difference = seconds - self._reading_time
        most = MAX_AHEAD
        if self.indexed:
            self._reading_time = min(seconds, self._reading_time + difference / 2)
            most = min(MAX_RANGES_AHEAD, GROWTH * self.ahead)
        elif not self._paced and difference > 0:
            self._reading_time = seconds
        else:
            self._reading_time += difference / 2
            self._deviation += (abs(difference) - self._deviation) / 4
        self._paced = True
        wanted = math.ceil(self.round_trip.lookahead / max(self._reading_time, 1e-6))
        self.ahead = max(1, min(most, wanted))

    def look_ahead(self, now: float, seconds: float) -> SplitRequest | None:
        """Return the request for splits that are needed soon, if any.

        Call it when a split is given to the source, and from time to time.

        Args:
            now: seconds.
            seconds: the time until the next call, at the latest.
        """
        # All consumers wait for the task whose turn has come, so tasks of coordinated reads hoard
        # no splits. (docs/decisions/079)
        if self._given is None or self.on_demand:
            return None
        if self.ahead > 1:
            return self.ask(now)
        at, splits = self._given
        # Half of the splits take less than the average.
        read_at = at + splits * max(0.0, self._reading_time - 2 * self._deviation)
        left = read_at - (now + seconds)
        lookahead = self.round_trip.lookahead
        stalls = self.round_trip.seconds > STALL_SHARE * self._reading_time
        begin = self._begin(now) if stalls and left <= lookahead else []
        # Later than the splits of a fast source: an idle worker may take them meanwhile.
        want = self._more() if left <= 2 * lookahead else 0
        return self._request(begin, want)

    def ask(self, now: float) -> SplitRequest | None:
        """Announce the next splits and ask for more, if it is time to; return the request."""
        return self._request(self._begin(now), self._more())

    def _begin(self, now: float) -> list[int]:
        """Announce the next splits, if half of those ahead are left; return their numbers."""
        begin: list[int] = []
        ahead = len(self.begun) + len(self.beginning)
        room = self.ahead - ahead if ahead <= self.ahead // 2 else 0
        if self.on_demand:
            room = len(self.assigned)
        for _ in range(min(room, len(self.assigned))):
            number, value = self.assigned.popleft()
            self.beginning[number] = value
            begin.append(number)
        if begin and self._measured is None:
            self._measured = begin[0], now
        return begin

    def _more(self) -> int:
        """Return the number of splits to ask for; 0 if there are enough, or it has asked."""
        if len(self.assigned) >= self.ahead or self.asked or self.ended:
            return 0
        if self.on_demand and not self._is_short:
            return 0
        self.asked = True
        return self._want()

    @property
    def _is_short(self) -> bool:
        """True if the source waits, and nothing is on its way."""
        return self.needed and not (self.begun or self.beginning or self.assigned)

    def _want(self) -> int:
        if self.on_demand:
            return self.ahead
        return (GROWTH if self.indexed else 2) * self.ahead

    def _request(self, begin: list[int], want: int) -> SplitRequest | None:
        if not begin and not want:
            return None
        batch = max(BATCH_SECONDS, self.round_trip.seconds)
        least = round(batch / max(self._reading_time, 1e-6))
        least = max(1, min(least, want))
        return SplitRequest(
            self.task_id, self.source, self.source_epoch, begin=begin, want=want, least=least
        )

    def granted(self, grant: SplitGrant, now: float) -> SplitRequest | None:
        """Apply an answer of the dispatcher; return the next request, if any."""
        self._measure(grant, now)
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
        asks = self.needed or self.ahead > 1 or not self.opened or self.on_demand
        return self.ask(now) if asks else None

    def _measure(self, grant: SplitGrant, now: float) -> None:
        """Measure the round trip of the oldest announcement, if this is its answer."""
        if self._measured is not None:
            number, at = self._measured
            if number in grant.begun or number in grant.refused:
                self.round_trip.add(now - at)
                self._measured = None

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

        More are begun when the source has one and half of `ahead` is left: at least half of the
        time ahead remains, and round trips are fewer than with single splits.
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

    def give_back(self, now: float) -> SplitRequest | None:
        """Give up the splits that are not announced; return the next request, if any."""
        self.assigned.clear()
        return self.ask(now)

    def reattach(self) -> SplitRequest | None:
        """Return the request for a new session: announcements may be lost, assignments are void."""
        self.assigned.clear()
        self._measured = None  # the wait for the dispatcher is not a round trip
        self.asked = not self.ended and (self._is_short or not self.on_demand)
        return self._request(list(self.beginning), self._want() if self.asked else 0)
