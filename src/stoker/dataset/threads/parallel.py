"""Calls of a user's function on the pool, results in order."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from stoker.dataset.random import Calls
from stoker.dataset.streams.failures import Failure, Origin, mark_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.threads import pool
from stoker.dataset.threads.meter import Cost, Meter
from stoker.dataset.threads.readahead import ReadAhead
from stoker.dataset.threads.tuning import Tuning, smallest_window
from stoker.dataset.threads.units import Single, Sink, Unit
from stoker.dataset.unpacking import apply
from stoker.elements.sizes import element_bytes
from stoker.errors import FailedPreconditionError

# A function is cheap below this: handing a call to a thread and back costs about 20 us.
CHEAP_SECONDS = 50e-6

# How often a waiting consumer looks whether it could run a call itself (see `_wait`).
_HELP_SECONDS = 0.05


class _Call:
    """One element's call: what the pool runs."""

    __slots__ = ("element", "index", "owner", "slot", "unit")

    def __init__(
        self, owner: "OrderedCalls", element: Any, unit: Unit, slot: int, index: int
    ) -> None:
        self.owner = owner
        self.element = element
        self.unit = unit
        self.slot = slot
        self.index = index

    def __call__(self) -> None:
        self.owner.run(self)


class OrderedCalls:
    """Applies `function` to the elements of `stream`, at most `limit` at once, and delivers.

    Units are delivered in order.

    Args:
        stream: read on a thread of its own, so that a slow input delays no finished result.
        function: the user's.
        limit: the most calls at once; a `Tuning` finds it while they run.
        origin: kind and site of the map node, for its errors.
        keyed: makes what keys the randomness of a call.
        size: elements per unit.
        sink: makes a unit's sink from the unit's number.
        drop_remainder: a last unit of fewer than `size` is dropped.
    """

    def __init__(
        self,
        stream: Stream,
        function: Callable[..., Any],
        limit: "int | Tuning",
        origin: Origin,
        keyed: Callable[[], Calls],
        *,
        size: int = 1,
        sink: Callable[[int], Sink] = Single,
        drop_remainder: bool = False,
    ) -> None:
        self._stream = stream
        self._function = function
        self._origin = origin
        self._keyed = keyed
        self._size = size
        self._make_sink = sink
        self._drop_remainder = drop_remainder
        self._tuning = limit if isinstance(limit, Tuning) else None
        self._limit = limit.limit if isinstance(limit, Tuning) else limit
        self._window = smallest_window(self._limit, size)
        self._units: deque[Unit] = deque()
        self._held = 0
        self._done = 0
        self._bytes = 0
        self._index = 0
        self._awaited: Unit | None = None
        self._settling = False
        self._seconds = 0.0
        self._measured = 0
        self._lease = pool.lease(self._limit)
        self._reader = ReadAhead(stream, self._room, self._accept)
        self._lock = self._reader.lock

    def start(self, done: Sequence[Any], first: Sequence[Any], index: int) -> None:
        """Begin: with what was computed and read already, then with the stream's elements.

        Args:
            done: results of the elements before `first` that were not delivered, less than a unit.
            first: inputs taken from the stream before.
            index: the number of the first of these, or of the stream's next element.
        """
        with self._lock:
            self._index = index - len(done)
            for value in done:
                unit, slot = self._next_slot()
                unit.sink.put(slot, value)
                self._finish(unit)
            self._held += len(done)
            if self._tuning is not None:
                self._tuning.begin(time.perf_counter())
                self._follow(self._tuning)
            self._accept(list(first))
        self._reader.start()

    def run(self, call: _Call) -> None:
        """Compute one element; runs in any thread and never raises."""
        unit = call.unit
        failure: BaseException | None = None
        tuning = self._tuning
        nbytes = 0
        start = time.perf_counter()
        meter = None if tuning is None else Meter(queued=tuning.wants_queued(start))
        if not unit.dropped:
            try:
                with self._keyed().over(iter((call.element,)), call.index + 1) as elements:
                    value = apply(self._function, next(elements))
                if tuning is not None:
                    nbytes = element_bytes(value)
                unit.sink.put(call.slot, value)
                del value  # a batch has taken it; the sink of one element holds it
            except Exception as error:  # noqa: BLE001 - raised where the consumer reads it
                failure = mark_failure(error, self._origin._replace(index=call.index))
            except BaseException as error:  # noqa: BLE001 - same; of sys.exit there is no origin
                failure = error
        seconds = time.perf_counter() - start
        cost = None if meter is None else meter.stop()
        input_bytes = 0 if tuning is None else element_bytes(call.element)
        call.element = None
        with self._lock:
            self._seconds += seconds
            self._measured += 1
            if failure is not None:
                unit.fail(call.slot, failure)
            unit.bytes += nbytes
            if not unit.dropped:
                self._bytes += nbytes
            self._finish(unit)
            if tuning is not None and cost is not None:
                if failure is None:
                    tuning.holds(input_bytes + nbytes)
                self._tune(tuning, cost)

    def take(self) -> Any:
        """The next unit's value, waiting for it.

        Raises:
            StopIteration: at the end.
            BaseException: the first failure in the unit.
        """
        unit = self._await_head()
        if unit is None:
            raise StopIteration
        return unit.deliver()

    def take_ready(self, size_of: Callable[[Any], int], most: int, max_bytes: int) -> list[Any]:
        """Whatever units are finished and did not fail, without waiting; perhaps none.

        Args:
            size_of: bytes of a unit's value.
            most: the most units.
            max_bytes: stop when at least so many bytes are taken.
        """
        values: list[Any] = []
        while len(values) < most and max_bytes > 0:
            with self._lock:
                if not self._units or self._units[0].missing or self._units[0].error is not None:
                    break
                unit = self._pop()
            values.append(unit.deliver())
            max_bytes -= size_of(values[-1])
        return values

    def advance(self, n: int) -> int:
        """Pass `n` units: those not begun are never computed."""
        passed = 0
        with self._reader.paused():
            unread = 0
            with self._lock:
                while passed < n and self._units:
                    unit = self._pop()
                    unit.dropped = True
                    passed += 1
                    if unit.count < self._size and not self._reader.ended:
                        unread = self._size - unit.count
            if self._reader.ended:
                return passed
            wanted = unread + (n - passed) * self._size
            got = self._stream.advance(wanted) if wanted else 0
            self._index += got
            if got < unread and self._drop_remainder:
                return passed - 1
            full, rest = divmod(max(got - unread, 0), self._size)
            return passed + full + (1 if rest and not self._drop_remainder else 0)

    @property
    def measured(self) -> int:
        """How many calls were timed since the last `forget_cost`."""
        return self._measured

    def mean_seconds(self) -> float:
        """What these calls took on the average."""
        with self._lock:
            return self._seconds / max(self._measured, 1)

    def outpaced_by(self, seconds: float) -> bool:
        """Whether calls one after the other, `seconds` each, would yield more; needs a `Tuning`."""
        with self._lock:
            return self._tuning is not None and self._tuning.outpaced_by(seconds)

    def forget_cost(self) -> None:
        """Measure afresh."""
        with self._lock:
            self._measured, self._seconds = 0, 0.0

    def settle(self) -> None:
        """Read no further than the current unit needs."""
        with self._lock:
            self._settling = True
            self._reader.wake()

    def settled(self) -> bool:
        """Whether, after `settle`, all is delivered: the stream can go on without this."""
        with self._lock:
            reader = self._reader
            idle = self._settling and not (reader.reading or reader.ended or reader.closed)
            return idle and not self._units

    def next_index(self) -> int:
        """The number of the next element to be read."""
        return self._index

    def close(self, *, close_stream: bool = True) -> None:
        """Forget what has not begun, wait for no running function; idempotent."""
        self._lease.release()
        self._reader.close(close_stream=close_stream)

    def _tune(self, tuning: Tuning, cost: Cost) -> None:
        supplied = bool(self._lease.waiting)
        if tuning.finished(time.perf_counter(), cost, supplied=supplied):
            self._follow(tuning)
        elif not supplied and self._units and self._units[0].missing and self._is_wide():
            tuning.ran_dry()
            self._follow(tuning)
        if self._room() > 0:
            self._reader.wake()

    def _follow(self, tuning: Tuning) -> None:
        """Run and read ahead as far as `tuning` says."""
        self._window = tuning.window
        if self._limit != tuning.limit:
            self._limit = tuning.limit
            self._lease.resize(self._limit)

    def _is_wide(self) -> bool:
        """Whether elements are held as far ahead as the window lets them."""
        return self._window - self._held < max(1, self._limit // 2)

    def _room(self) -> int:
        if self._settling:
            return self._size - self._units[-1].count if self._units else 0
        if self._is_wide():
            return 0
        free = self._window - self._held
        if self._tuning is None:
            return free
        free = min(free, self._tuning.affordable(self._held - self._done, self._bytes))
        if free > 0 or len(self._units) > 1:
            return free
        # Whatever it takes, one unit must be held to be delivered.
        return self._size - self._units[0].count if self._units else 1

    def _accept(self, elements: list[Any]) -> None:
        calls: list[_Call] = []
        for element in elements:
            unit, slot = self._next_slot()
            if isinstance(element, Failure):
                unit.fail(slot, element.error)
                self._finish(unit)
            else:
                calls.append(_Call(self, element, unit, slot, self._index - 1))
        self._held += len(elements)
        self._lease.submit(calls)
        if self._reader.ended and self._units and self._units[-1].count < self._size:
            self._end_short(self._units[-1])

    def _next_slot(self) -> tuple[Unit, int]:
        """Where the next element goes; opens a unit where the last is full."""
        if not self._units or self._units[-1].count == self._size:
            sink = self._make_sink(self._index // self._size)
            self._units.append(Unit(sink, self._size))
        unit = self._units[-1]
        unit.count += 1
        self._index += 1
        return unit, unit.count - 1

    def _end_short(self, unit: Unit) -> None:
        if self._drop_remainder:
            self._units.pop()
            unit.dropped = True
        else:
            unit.missing -= self._size - unit.count

    def _finish(self, unit: Unit) -> None:
        unit.missing -= 1
        unit.done += 1
        if not unit.dropped:
            self._done += 1
        if unit.missing == 0 and unit is self._awaited:
            self._reader.filled.notify_all()

    def _pop(self) -> Unit:
        unit = self._units.popleft()
        self._held -= unit.count
        self._done -= unit.done
        self._bytes -= unit.bytes
        if self._room() > 0:
            self._reader.wake()
        return unit

    def _await_head(self) -> Unit | None:
        while True:
            with self._lock:
                if self._reader.closed:
                    raise FailedPreconditionError("this iterator was closed while it was read")
                head = self._units[0] if self._units else None
                if head is None and self._reader.ended:
                    return None
                if head is not None and head.missing == 0:
                    return self._pop()
            if head is None or not self._lease.help(_calls_of(head)):
                self._wait(head)

    def _wait(self, head: Unit | None) -> None:
        """Wait until `head` is finished, or until there is something at all if it is None."""
        with self._lock:
            first = self._units[0] if self._units else None
            if self._reader.closed or first is not head or (head is None and self._reader.ended):
                return
            tuning = self._tuning
            if tuning is not None:
                tuning.consumer_waits(time.perf_counter())
            if head is None:
                self._reader.filled.wait()
            elif head.missing:
                # Every thread of the pool may be inside a function that waits, by way of another
                # pipeline, for this very unit. Then nobody but this thread can compute it.
                unread = head.count < self._size and not self._reader.ended
                may_help = unread or self._lease.waits(_calls_of(head))
                self._awaited = head
                self._reader.filled.wait(_HELP_SECONDS if may_help else None)
                self._awaited = None
            if tuning is not None:
                tuning.consumer_goes_on(time.perf_counter())


def _calls_of(unit: Unit) -> Callable[[Any], bool]:
    return lambda call: call.unit is unit
