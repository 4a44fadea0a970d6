"""A consumer of a deterministic epoch and its workers, in simulated time."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from stoker.service.client.orders.order import ReceivedChunk
from stoker.service.client.orders.position_order import PositionOrder
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.service.client.wants.scheduler import Scheduler
from stoker.service.client.wants.spans import Spans

Seconds = Callable[[int], float]
"""The time of an element."""

TICK_SECONDS = 0.25
FRAME_SECONDS = 0.005
FRAME_ELEMENTS = 8192


@dataclass
class SimulatedWorker:
    """A worker that computes what it is asked for, one element after another.

    Attributes:
        seconds: the time of each element.
        frozen_at: the time from which on it does nothing.
        starts_at: the time at which it joins.
        loads: the time before its first element.
    """

    seconds: Seconds
    frozen_at: float = float("inf")
    starts_at: float = 0.0
    loads: float = 0.0
    queue: deque[int] = field(default_factory=deque)
    wanted: Spans = field(default_factory=Spans)
    busy: bool = False
    computed: int = 0
    started: bool = False


class SimulatedReading:
    """Reads an epoch of `length` elements; `end` is the time at which all are consumed.

    Args:
        workers: that compute it.
        length: its elements.
        nbytes: bytes of each element.
        consume: seconds of the user on each element.
        trip: seconds of a message.
        buffer_bytes: as for `Scheduler`.
        most: as for `Scheduler`.
    """

    def __init__(
        self,
        workers: list[SimulatedWorker],
        length: int,
        nbytes: Callable[[int], int] = lambda _: 1000,
        consume: float = 0.0,
        trip: float = 0.0002,
        buffer_bytes: int = 256 << 20,
        most: int | None = None,
    ) -> None:
        self.order = PositionOrder(EpochShare())
        self.order.length = length
        self.scheduler = Scheduler(self.order, buffer_bytes, most)
        self.now = self.end = 0.0
        self.most_bytes = self.turns = 0
        self.longest_wait = 0.0
        self.yielded: list[int] = []
        self.workers, self._length, self._nbytes = workers, length, nbytes
        self._consume, self._trip = consume, trip
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._busy = False
        self._waits_since: float | None = None
        self._head_at = (0, 0.0)
        self._over = False

    def run(self, longest: float = 1000.0) -> "SimulatedReading":
        for number, worker in enumerate(self.workers):
            self._after(worker.starts_at + number * 1e-5, partial(self._join, number))
        self._after(TICK_SECONDS, self._tick)
        self._after(0.0, self._read)
        while self._events and not self._over:
            self.now, _, event = heapq.heappop(self._events)
            assert self.now < longest, f"nothing after {self.order.next} of {self._length}"
            event()
        self.end = self.now
        return self

    @property
    def repeated(self) -> int:
        """The number of elements computed more than once."""
        return sum(worker.computed for worker in self.workers) - len(self.yielded)

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def _join(self, number: int) -> None:
        self.scheduler.joined(number)
        self._plan()

    def _tick(self) -> None:
        self._plan()
        self._after(TICK_SECONDS, self._tick)

    def _plan(self) -> None:
        if self._waits_since is not None:
            if self._head_at[0] != self.order.head:
                self._head_at = self.order.head, self.now
            self.scheduler.doubt_late(max(self._waits_since, self._head_at[1]), self.now)
        for number, (start, stop) in self.scheduler.plan(self.now):
            self.turns += 1
            self._after(self._trip, partial(self._ask, number, start, stop))

    def _ask(self, number: int, start: int, stop: int) -> None:
        worker = self.workers[number]
        assert not worker.wanted.remove(start, stop), "asked twice of one worker"
        worker.wanted.add(start, stop)
        worker.queue += range(start, stop)
        needed = self.order.head
        if start <= needed < stop:
            worker.queue = deque(sorted(worker.queue, key=lambda x: not start <= x < stop))
        if not worker.busy:
            worker.busy = True
            self._after(0.0 if worker.started else worker.loads, lambda: self._compute(number))
            worker.started = True

    def _compute(self, number: int) -> None:
        """Compute one frame."""
        worker, seconds = self.workers[number], 0.0
        frame: list[int] = []
        cancelled = self.scheduler.workers.get(number)
        if cancelled is not None:
            for start, stop in cancelled.cancelled:
                worker.queue = deque(x for x in worker.queue if not start <= x < stop)
                worker.wanted.remove(start, stop)
            cancelled.cancelled.clear()
        while worker.queue and seconds < FRAME_SECONDS and len(frame) < FRAME_ELEMENTS:
            if frame and worker.queue[0] != frame[-1] + 1:
                break
            element = worker.queue.popleft()
            seconds += worker.seconds(element)
            frame.append(element)
        worker.busy = bool(frame) and self.now < worker.frozen_at
        if worker.busy:
            self._after(seconds, lambda: self._computed(number, frame))

    def _computed(self, number: int, frame: list[int]) -> None:
        worker = self.workers[number]
        if self.now < worker.frozen_at:
            worker.computed += len(frame)
            worker.wanted.remove(frame[0], frame[-1] + 1)
            self._after(self._trip, lambda: self._receive(number, frame))
            self._compute(number)

    def _receive(self, number: int, frame: list[int]) -> None:
        if number not in self.scheduler.workers:
            return
        nbytes = sum(map(self._nbytes, frame))
        ranges = [(frame[0], len(frame), 1)]
        chunk = ReceivedChunk(list(frame), nbytes, task_id=number, number=0, ranges=ranges)
        self.order.put(chunk)
        self.scheduler.arrived(number, self.order.spans(chunk), nbytes, self.now)
        self.most_bytes = max(self.most_bytes, self.order.held_bytes)
        if self.scheduler.may_plan(number):
            self._plan()
        self._read()

    def _read(self) -> None:
        if self._busy or self._over:
            return
        chunk = self.order.take()
        if chunk is None:
            if self.order.is_over(True, True):
                self._over = True
                return
            self._waits_since = self.now if self._waits_since is None else self._waits_since
            self._plan()
            return
        if self._waits_since is not None:
            self.longest_wait = max(self.longest_wait, self.now - self._waits_since)
        self._waits_since = None
        self.yielded += chunk.elements
        if self.scheduler.blocked:
            self._plan()
        self._busy = True
        self._after(self._consume * len(chunk.elements), self._rest)

    def _rest(self) -> None:
        self._busy = False
        self._read()
