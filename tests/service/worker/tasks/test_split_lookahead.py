"""Time at which splits are announced, on a virtual clock, for a dispatcher that answers late."""

import heapq
import math
from collections.abc import Callable
from itertools import count, islice

from stoker.service.messages import SplitGrant, SplitRequest
from stoker.service.worker.tasks.split_queue import STALL_SHARE, SplitQueue

TICK = 0.5
LONGEST = 1000.0
"""An epoch that takes longer stalls; its duration stays infinite."""


class Epoch:
    """One epoch of one source, read by one worker.

    Args:
        splits: their number.
        seconds: the reading time of one.
        delay: the time from a request to its answer.
        indexed: splits are ranges.
        most: the most splits in one answer.

    Attributes:
        duration: the time until the source has received its end.
        begun_ahead: the most splits that were begun or announced and not given to the source.
    """

    def __init__(
        self, splits: int, seconds: float, delay: float, indexed: bool = False, most: int = 4096
    ) -> None:
        self.queue = SplitQueue(1, 0, 0, indexed)
        self.duration = math.inf
        self.begun_ahead = 0
        self._seconds, self._delay, self._most = seconds, delay, most
        self._free, self._total = iter(range(splits)), splits
        self._begun = 0
        self._want: SplitRequest | None = None
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self._send(self.queue.ask(0.0), 0.0)
        self._at(0.0, self._need)
        self._at(TICK / 4, self._tick)
        while self.duration == math.inf and self._events[0][0] < LONGEST:
            now, _, event = heapq.heappop(self._events)
            event(now)

    def _at(self, time: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def _send(self, request: SplitRequest | None, now: float) -> None:
        if request is None:
            return
        if request.begin:
            self._begun += len(request.begin)
            self._answer(now, begun=request.begin)
        self._want = request if request.want else self._want
        if self._want is None:
            return
        taken = min(self._want.want, self._most)
        splits = list(islice(self._free, taken))
        if splits:
            self._answer(now, splits=[(n, (n, n + 1)) for n in splits])
        elif self._begun == self._total:
            self._answer(now, end=True)
        else:
            return
        self._want = None

    def _answer(self, now: float, **fields) -> None:
        grant = SplitGrant(1, 0, 0, **fields)

        def arrive(then: float) -> None:
            self._send(self.queue.granted(grant, then), then)
            self._give(then)

        self._at(now + self._delay, arrive)

    def _give(self, now: float) -> None:
        split = self.queue.take(now)
        if split:
            [(start, stop)] = split
            self._at(now + self._seconds * (stop - start), self._need)
            self._look_ahead(now)
        elif split is not None:
            self.duration = now

    def _need(self, now: float) -> None:
        self._send(self.queue.need(now), now)
        self._give(now)

    def _look_ahead(self, now: float) -> None:
        self._send(self.queue.look_ahead(now, TICK), now)
        if not self.queue.needed:
            ahead = len(self.queue.begun) + len(self.queue.beginning)
            self.begun_ahead = max(self.begun_ahead, ahead)

    def _tick(self, now: float) -> None:
        self._look_ahead(now)
        self._at(now + TICK, self._tick)


def test_slow_commits_cost_files_of_a_second_nothing():
    fast, slow = Epoch(40, 1.0, 0.001), Epoch(40, 1.0, 0.2)
    assert slow.duration < 1.02 * fast.duration
    assert slow.begun_ahead == 1


def test_slow_commits_do_not_stall_files_of_a_few_round_trips():
    # The first two announcements and the end each wait for a round trip.
    assert Epoch(200, 0.3, 0.2).duration < 200 * 0.3 + 5 * 0.2


def test_slow_commits_do_not_stall_short_ranges():
    epoch = Epoch(50_000, 80e-6, 0.2, indexed=True)
    assert epoch.duration < 50_000 * 80e-6 + 8 * 0.2


def test_split_that_outlasts_many_round_trips_is_not_begun_ahead():
    epoch = Epoch(10, 1.1 * 0.2 / STALL_SHARE, 0.2)
    assert epoch.begun_ahead == 0


def test_fast_dispatcher_is_not_asked_ahead():
    assert Epoch(40, 1.0, 0.001).begun_ahead == 0


def test_wait_for_a_restart_is_no_round_trip():
    queue = SplitQueue(1, 0, 0)
    for number in range(3):
        now = 60.0 * number
        queue.need(now)
        queue.granted(SplitGrant(1, 0, 0, splits=[(number, "x")]), now)
        queue.reattach()
        queue.granted(SplitGrant(1, 0, 0, begun=[number]), now + 50.0)
        assert queue.take(now + 50.0) == ["x"]
    assert queue.round_trip.seconds == 0.0
