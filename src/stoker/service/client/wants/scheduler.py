"""Decide which elements of a deterministic epoch are asked of which worker.

Without I/O and clock, so that a simulation can measure it (tests/service/client/wants). Elements
are numbered from the first that the consumer reads.
"""

from collections.abc import Iterable, Iterator

from stoker.service.client.orders.position_order import ELEMENT_BYTES, PositionOrder
from stoker.service.client.wants.spans import Span, Spans
from stoker.service.client.wants.worker_turns import WorkerTurns

TURN_SECONDS = 0.015
"""Time of a turn of few workers: a message for each costs a hundredth of it."""

WANT_SECONDS = 0.005
"""Mean time between two turns of all workers: the messages take 2 % of the trainer's CPU time,
however many workers there are. (docs/decisions/102)"""

LONGEST_TURN_SECONDS = 0.25
"""Time of a turn, at most: that of 50 workers."""

TURN_BYTES = 4 << 20
"""Bytes of a turn, at most."""

TURN_ELEMENTS = 65_536
"""Elements of a turn, at most: eight full frames."""

TURN_GROWTH = 4
"""Factor by which the turns of a worker grow at most."""

SLOW = 2.0
"""A worker that needs this many times the time of the one that would be first gets a turn far
ahead."""

LATE_SECONDS = 1.0
"""Shortest time for which an element is waited for until another worker is asked."""

LATE = 3.0
"""The same time, in expected times of the element."""

UNKNOWN_LATE_SECONDS = 10.0
"""The same time while no worker has answered, so that nothing is known of the elements."""

PROBE_LATE_SECONDS = 0.1
"""Shortest such time for an element that was asked for to learn the speed of a worker."""

PROBE_TURNS, PROBE_SECONDS = 20, 1.0
"""Rest of a worker that is too slow for any turn until its speed is measured again, in expected
times of the element, and at least in seconds."""

BYTES_MEMORY = 0.9
"""Share of the earlier frames in the measured size of an element."""


class Scheduler:
    """The elements asked of each worker.

    Each turn goes to the worker that should finish it first, from the first element on that nobody
    was asked for. A worker that is much slower gets a turn that is needed when it should be done.

    Args:
        order: the elements that have arrived.
        buffer_bytes: the bytes that are asked for and not consumed, at most.
        most: the number of such elements, at most; ``None`` without a limit.

    Attributes:
        workers: those that answer.
        asked: the elements that have arrived or are asked of a worker that is not doubted.
        asked_again: the number of elements that were asked for while another worker had them.
        cancelling: workers with elements that are not wanted any more, which the caller notifies.
        blocked: there was no room for a turn that a worker could have computed.
    """

    def __init__(self, order: PositionOrder, buffer_bytes: int, most: int | None) -> None:
        self.workers: dict[int, WorkerTurns] = {}
        self.asked = Spans()
        self.asked_again = 0
        self.blocked = False
        self._order = order
        self._buffer_bytes = buffer_bytes
        self._most = most
        self.cancelling: set[int] = set()
        self._twice = Spans()
        self._bytes = self._measured = 0.0
        self._asked_again_at = 0.0

    # ── events ────────────────────────────────────────────────────────────────────────────────────
    def joined(self, number: int) -> None:
        """Add a worker."""
        self.workers[number] = WorkerTurns()

    def lost(self, number: int) -> None:
        """Remove a worker: what was asked of it is asked of others."""
        worker = self.workers.pop(number, None)
        self.cancelling.discard(number)
        if worker is not None:
            self._release(worker)

    def arrived(self, number: int, spans: Iterable[Span], nbytes: int, now: float) -> None:
        """Record elements that a worker has sent."""
        worker, elements = self.workers[number], 0
        for start, stop in spans:
            elements += stop - start
            worker.drop(start, stop)
            self.asked.add(start, stop)
            if self._twice:
                self._cancel(worker, start, stop)
        if not elements:
            return
        if worker.doubted:
            self._claim(worker)
        worker.answered(elements, now)
        self._bytes = BYTES_MEMORY * self._bytes + nbytes
        self._measured = BYTES_MEMORY * self._measured + elements

    def may_plan(self, number: int) -> bool:
        """Return whether `plan` may ask for more, after elements of this worker have arrived."""
        ready = self.workers[number].ready or self._order.head not in self.asked
        return ready or self.blocked or bool(self.cancelling or self._twice)

    def skipped(self, element: int) -> None:
        """Record that no element before this one is wanted."""
        if element > 0:
            self.asked.add(0, element)
            self._twice.remove(0, element)
            for worker in self.workers.values():
                worker.drop(0, element)

    def _cancel(self, sender: WorkerTurns, start: int, stop: int) -> None:
        """Cancel elements that have arrived at the other workers that were asked for them."""
        for first, end in self._twice.remove(start, stop):
            for number, worker in self.workers.items():
                if worker is not sender and (dropped := worker.drop(first, end)):
                    worker.cancelled += dropped
                    self.cancelling.add(number)

    def _release(self, released: WorkerTurns) -> None:
        """Let others be asked for what was asked of a worker."""
        for start, stop in released.wanted:
            self.asked.remove(start, stop)
        for worker in self.workers.values():
            if worker is not released and not worker.doubted:
                self._claim(worker)

    def _claim(self, worker: WorkerTurns) -> None:
        for start, stop in worker.wanted:
            self.asked.add(start, stop)

    # ── lateness ──────────────────────────────────────────────────────────────────────────────────
    # A frozen worker is late, as a slow one is: nobody asks whether it lives. (docs/decisions/104)
    @property
    def awaited(self) -> int | None:
        """The worker that was asked for the first element that is missing."""
        head = self._order.head
        having = (x for x, worker in self.workers.items() if head in worker.wanted)
        return min(having, key=lambda x: self.workers[x].doubted, default=None)

    def doubt_late(self, since: float, now: float) -> bool:
        """Let others be asked for the elements of workers that are late; return whether any is.

        Args:
            since: the time since which the user waits for the first element that is missing.
            now: seconds.
        """
        waited = now - max(since, self._asked_again_at)
        if waited < PROBE_LATE_SECONDS:
            return False
        number = self.awaited
        owner = None if number is None else self.workers[number]
        if owner is None or owner.doubted:
            if waited < LATE_SECONDS:
                return False
        elif waited < self._patience(owner):
            return False
        # Workers of one frozen machine are late together.
        late = [x for x in self._trusted() if x.wanted and now - x.since >= self._patience(x)]
        if not late or len(late) == len(self._trusted()):
            late = [x for x in late if x is owner]
        if not late or len(self.workers) == 1:
            return False
        if len(self._trusted()) == 1:
            # The others may have been silent for lack of room.
            for worker in self.workers.values():
                worker.doubted = False
                self._claim(worker)
        for worker in late:
            worker.doubted = True
            self.asked_again += worker.wanted.count
            for start, stop in worker.wanted:
                self._twice.add(start, stop)
            self._release(worker)
        self._asked_again_at = now
        return True

    def _trusted(self) -> list[WorkerTurns]:
        return [worker for worker in self.workers.values() if not worker.doubted]

    def _patience(self, worker: WorkerTurns) -> float:
        """Return the seconds for which the first missing element is waited for."""
        known = [x.seconds for x in self._trusted() if x.seconds is not None]
        if not known:
            return float("inf") if worker.loading else UNKNOWN_LATE_SECONDS
        if worker.probe:
            return max(PROBE_LATE_SECONDS, LATE * min(known))
        expected = min(worker.wanted.count, worker.turn) * (worker.seconds or min(known))
        return max(LATE_SECONDS, LATE * expected)

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────
    # Equal parts would let all workers wait for the slowest. (docs/decisions/102)
    def plan(self, now: float) -> list[tuple[int, Span]]:
        """Ask workers for all that there is room for; return the turns."""
        turns: list[tuple[int, Span]] = []
        self.blocked = False
        while (turn := self._next_turn(now)) is not None:
            number, (start, stop) = turn
            self.workers[number].ask(start, stop, now)
            self.asked.add(start, stop)
            turns.append(turn)
        turns += self._test_doubted(now)
        return turns

    def _test_doubted(self, now: float) -> Iterator[tuple[int, Span]]:
        """Ask workers that were late for an element that another has too, to know if they answer.

        Others have done all that they were asked for, so that they may send nothing by themselves.
        """
        element = self.asked.stop - 1
        for number, worker in self.workers.items():
            rested = not worker.wanted and now - worker.since >= PROBE_SECONDS
            if worker.doubted and rested and element >= self._order.needed:
                worker.ask(element, element + 1, now)
                self.asked_again += 1
                yield number, (element, element + 1)

    @property
    def end(self) -> int:
        """The element before which elements may be asked for."""
        order, end = self._order, self._order.length or 0
        if self._most is not None:
            end = min(end, order.needed + self._most)
        if self._measured:
            end = min(end, order.next + max(1, int(self._buffer_bytes / self._element_bytes)))
        return end

    @property
    def _element_bytes(self) -> float:
        """The bytes of an element here, as measured."""
        return ELEMENT_BYTES + self._bytes / self._measured

    @property
    def _room(self) -> int:
        """The number of elements that fit, beside all that have arrived or are asked for."""
        if not self._measured:
            return TURN_ELEMENTS
        coming = self.asked.count - self._order.arrived
        free = self._buffer_bytes - self._order.held_bytes
        return int(free / self._element_bytes) - coming

    def _next_turn(self, now: float) -> tuple[int, Span] | None:
        end, room, head = self.end, self._room, self._order.head
        ready = [(x, worker) for x, worker in self.workers.items() if worker.ready]
        if head not in self.asked:
            # After a loss, or behind turns far ahead: a worker that has enough to do may have no
            # room to send it before the user has this element, and one that is ready be too slow.
            # The user, who does not wait yet, will wait when nothing causes another plan.
            ready = [(x, worker) for x, worker in self.workers.items() if not worker.doubted]
        if not ready:
            return None
        gap = self.asked.gap(head, end)
        if gap[0] == gap[1]:
            self.blocked = True
            return None
        # What is needed next passes: all that arrived later may wait for it. (docs/decisions/103)
        room = max(room, 1) if gap[0] == head else room
        if room < 1:
            self.blocked = True
            return None
        window = (end - self._order.needed) // (2 * len(self.workers))
        known = [x for x in self.workers.values() if x.seconds is not None and not x.doubted]
        first = min((x.finish(self._size(x, window), now) for x in known), default=0.0)
        rate = sum(1 / x.seconds for x in known if x.seconds)
        times = [(self._finish(x, window, now, bool(known)), n, x) for n, x in ready]
        for seconds, number, worker in sorted(times, key=lambda time: time[0]):
            ahead = int((seconds - first) * rate) if seconds > SLOW * first else 0
            start, stop = self.asked.gap(gap[0] + ahead, end)
            probe = ahead > 0 and worker.seconds is None
            if start == stop:
                if not self._may_probe(worker, seconds, now) or end - 1 in self.asked:
                    self.blocked = True
                    continue
                start, stop, probe = end - 1, end, True
            worker.probe = probe
            size = 1 if probe else min(self._size(worker, window), room)
            return number, (start, min(stop, start + size))
        return None

    def _size(self, worker: WorkerTurns, window: int) -> int:
        """Return the number of elements of the next turn of a worker.

        Args:
            worker: the worker.
            window: the elements of a turn if each worker has two that fit.
        """
        if worker.seconds is None:
            return 1
        every = min(max(TURN_SECONDS, WANT_SECONDS * len(self.workers)), LONGEST_TURN_SECONDS)
        size = min(TURN_GROWTH * worker.turn, every / worker.seconds, window, TURN_ELEMENTS)
        if self._bytes:
            size = min(size, TURN_BYTES * self._measured / self._bytes)
        return max(1, int(size))

    def _finish(self, worker: WorkerTurns, window: int, now: float, others_known: bool) -> float:
        """Return the seconds in which a worker should finish its next turn."""
        if worker.seconds is None and others_known:
            return LATE_SECONDS  # its functions may take long to load
        return worker.finish(self._size(worker, window), now)

    def _may_probe(self, worker: WorkerTurns, seconds: float, now: float) -> bool:
        if worker.seconds is None:
            return True
        rest = max(PROBE_SECONDS, PROBE_TURNS * seconds)
        return not worker.wanted and now - worker.since >= rest
