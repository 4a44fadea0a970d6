"""Calls of a user function on the pool, with results in order."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stoker.dataset.random import Calls
from stoker.dataset.streams.failures import Failure, StreamOrigin, mark_failure
from stoker.dataset.streams.measure.sampling import SLOW_SECONDS
from stoker.dataset.streams.stream import Stream
from stoker.dataset.streams.work import Work
from stoker.dataset.threads import pool
from stoker.dataset.threads.readahead import ReadAhead
from stoker.dataset.threads.runnable import CoreTime
from stoker.dataset.threads.tuning import CallReport, Tuning, least_ahead
from stoker.dataset.unpacking import apply
from stoker.elements.sizes import element_bytes

# Each slow call of this number measures its time on a core.
_SAMPLED = 8

Finish = Callable[[Any], Any]


@dataclass(slots=True, eq=False)
class _Call:
    """An element's call, which the pool runs, and its result; guarded by its owner's lock."""

    owner: "OrderedCalls"
    element: Any
    index: int
    finish: Finish | None
    value: Any = None
    error: BaseException | None = None
    nbytes: int = 0
    done: bool = False
    dropped: bool = False

    def __call__(self) -> None:
        self.owner.run(self)


class OrderedCalls(Stream):
    """Applies `function` to elements of `stream` in `limit` parallel calls; results in order.

    Args:
        stream: read on a dedicated thread, so that a slow input delays no finished result.
        function: the user's.
        limit: the most concurrent calls; a `Tuning` adapts the limit while calls run.
        origin: kind and site of the map node, for its errors.
        keyed: makes what keys the randomness of a call.
        finish_with: makes, from an element's number, the function that the computing thread
            applies to the result; called in order.
        group: consecutive elements that the consumer needs together; the consumer is woken once for
            a whole group. Groups begin at multiples of this number.
        work: counts the calls and the time in the function, until this stream is closed.

    Attributes:
        index: the number of the next element to be read.
    """

    work: Work

    def __init__(
        self,
        stream: Stream,
        function: Callable[..., Any],
        limit: "int | Tuning",
        origin: StreamOrigin,
        keyed: Callable[[], Calls],
        *,
        finish_with: Callable[[int], Finish] | None = None,
        group: int = 1,
        work: Work | None = None,
    ) -> None:
        self._stream = stream
        self._function = function
        self._origin = origin
        self._keyed = keyed
        self._recorded = keyed().recorded()
        self._finish_with = finish_with
        self._group = group
        self._tuning = limit if isinstance(limit, Tuning) else None
        self._limit = limit.limit if isinstance(limit, Tuning) else limit
        self._read_ahead = least_ahead(self._limit, group)
        self._calls: deque[_Call] = deque()
        self._pending = self._bytes = 0
        self.index = 0
        self._until = self._awaited = 0
        """Calls before `_until` that the consumer waits for."""
        self._draining = False
        self.work = work or Work()
        self.work.threads = self._limit
        self._lease = pool.lease(self._limit)
        self._reader = ReadAhead(stream, self._room, self._accept, self.work)
        self._lock = self._reader.lock

    def start(self, index: int) -> None:
        """Begin to read; `index` is the number of the stream's next element."""
        with self._lock:
            self.index = index
            if self._tuning is not None:
                self._tuning.begin(time.perf_counter())
                self._follow(self._tuning)
        self._reader.start()

    def run(self, call: _Call) -> None:
        """Compute an element; runs in any thread and never raises."""
        error: BaseException | None = None
        value: Any = None
        nbytes = 0
        tuning = self._tuning
        sampled, examined = self._is_sampled(), tuning is not None and tuning.wants_runnable()
        core = CoreTime() if sampled or examined else None
        start = time.perf_counter()
        if not call.dropped:
            try:
                value = self._apply(call)
                nbytes = element_bytes(value)
                if call.finish is not None:
                    value = call.finish(value)
            except Exception as raised:  # noqa: BLE001 - raised where the consumer reads it
                error = mark_failure(raised, self._origin.at(call.index, call.element))
            except BaseException as raised:  # noqa: BLE001 - same; of sys.exit there is no origin
                error = raised
        now = time.perf_counter()
        core_times = None if core is None else core.elapsed()
        used: int | None = None
        if tuning is not None and error is None:
            used = nbytes + element_bytes(call.element)
        call.element = call.finish = None
        with self._lock:
            if not self._reader.closed:  # afterwards another stream may own `work`
                self.work.add_call(now - start, core_times if sampled else None)
            call.done = True
            if not call.dropped:
                call.value, call.error, call.nbytes = value, error, nbytes
                error = None  # whose traceback refers to this frame
                self._pending -= 1
                self._bytes += nbytes
            if tuning is not None:
                runnable = sum(core_times) if examined and core_times else None
                supplied, awaited = bool(self._lease.waiting), self._until > 0
                self._tune(tuning, CallReport(now, now - start, runnable, used, supplied, awaited))
            if call.index < self._until:
                self._awaited -= 1
                if not self._awaited:
                    self._reader.arrived.notify_all()

    def _is_sampled(self) -> bool:
        """Return True if the next call should measure its time on a core."""
        work = self.work
        return not work.calls % _SAMPLED and work.busy > work.calls * SLOW_SECONDS

    def _apply(self, call: _Call) -> Any:
        recorded = self._recorded
        slot = -1
        if recorded is not None:
            slot = recorded.begin(call.index, call.index + 1, call.element)
        try:
            with self._keyed().over(iter((call.element,)), call.index + 1) as elements:
                return apply(self._function, next(elements))
        finally:
            if recorded is not None:
                recorded.end(slot)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if lazy:
            max_elements = 1
        results: list[Any] = []
        with self._lock:
            until = self._end_of_group()
        while True:
            with self._lock:
                max_bytes -= self._take_done(results, max_elements - len(results), max_bytes)
                if self._is_enough(results, until, max_elements, max_bytes):
                    return results
            if not self._lease.help(lambda call: bool(call.index < until)):
                self._wait(until)

    def advance(self, n: int) -> int:
        """Skip `n` elements: the calls not begun are never computed."""
        with self._lock:
            skipped = self._drop(n)
        if skipped == n:
            return n
        with self._reader.paused():
            with self._lock:
                skipped += self._drop(n - skipped)  # read before the reader paused
            if skipped < n and not (self._reader.ended or self._draining):
                unread = self._stream.advance(n - skipped)
                self.index += unread
                skipped += unread
        return skipped

    def filled(self) -> float:
        with self._lock:
            return (len(self._calls) - self._pending) / max(1, self._read_ahead)

    def close(self, *, close_stream: bool = True) -> None:
        """Forget what has not begun, wait for no running function; idempotent."""
        self._lease.release()
        self._reader.close(close_stream=close_stream)

    def drain(self) -> None:
        """Read no more: the stream ends after the elements read."""
        with self._lock:
            self._draining = True

    def drained(self) -> bool:
        """Return True after `drain`, once all elements read are taken."""
        with self._lock:
            return self._draining and not (self._calls or self._reader.reading)

    def _tune(self, tuning: Tuning, report: CallReport) -> None:
        if tuning.finished(report):
            self._follow(tuning)
        # Also after a step was undone, with its read-ahead: this call may be the last that ends
        # before the slow one, and no other would notice that the threads are idle.
        if not report.supplied and self._calls and not self._calls[0].done and self._is_wide():
            tuning.ran_dry(len(self._calls))
            self._follow(tuning)
        if self._room() > 0:
            self._reader.wake()

    def _follow(self, tuning: Tuning) -> None:
        """Run and read ahead as far as `tuning` allows."""
        self._read_ahead = tuning.read_ahead
        if self._limit != tuning.limit:
            self._limit = self.work.threads = tuning.limit
            self._lease.resize(self._limit)

    def _is_wide(self) -> bool:
        """Return True if reading more is not worth waking a thread."""
        return self._read_ahead - len(self._calls) < max(1, self._limit // 2)

    def _room(self) -> int:
        if self._draining or self._is_wide():
            return 0
        free = self._read_ahead - len(self._calls)
        if self._tuning is not None:
            free = min(free, self._tuning.affordable(self._pending, self._bytes))
        # A single element of any size must fit.
        return free if self._calls else max(free, 1)

    def _accept(self, elements: list[Any]) -> None:
        calls: list[_Call] = []
        for element in elements:
            finish = None if self._finish_with is None else self._finish_with(self.index)
            call = _Call(self, element, self.index, finish)
            self.index += 1
            self._calls.append(call)
            if isinstance(element, Failure):
                call.done, call.error = True, element.error
            else:
                calls.append(call)
        self._pending += len(calls)
        self._lease.submit(calls)

    def _end_of_group(self) -> int:
        """Return the number after the last element of the group that is delivered next."""
        first = self.index - len(self._calls)
        return first - first % self._group + self._group

    def _take_done(self, results: list[Any], max_elements: int, max_bytes: int) -> int:
        """Append finished results up to a failure; return their approximate size in bytes.

        Raises:
            FailedPreconditionError: if this is closed.
            BaseException: the failure that comes first, if `results` is empty.
        """
        self._reader.check_open()
        calls, nbytes, limit = self._calls, 0, len(results) + max_elements
        while calls and calls[0].done and len(results) < limit and nbytes < max_bytes:
            if calls[0].error is not None and results:
                break
            call = calls.popleft()
            self._bytes -= call.nbytes
            nbytes += call.nbytes
            if call.error is not None:
                error, call.error = call.error, None  # a thread may still refer to the call
                raise error
            results.append(call.value)
        if self._room() > 0:
            self._reader.wake()
        return nbytes

    def _is_enough(self, results: list[Any], until: int, max_elements: int, max_bytes: int) -> bool:
        if not self._calls and (self._reader.ended or self.drained()):
            return True
        if not results:
            return False
        complete = self.index - len(self._calls) >= until
        failed = bool(self._calls) and self._calls[0].error is not None
        return complete or failed or len(results) >= max_elements or max_bytes <= 0

    def _drop(self, n: int) -> int:
        dropped = min(n, len(self._calls))
        for _ in range(dropped):
            call = self._calls.popleft()
            call.dropped = True
            self._bytes -= call.nbytes
            self._pending -= not call.done
        return dropped

    def _wait(self, until: int) -> None:
        """Wait until the calls before `until` are done; or the first, if not all are read."""
        with self._lock:
            calls, reader = self._calls, self._reader
            if reader.closed or (calls[0].done if calls else reader.ended or self.drained()):
                return
            timeout = None
            if calls:
                first = calls[0].index
                self._until = until if first + len(calls) >= until else first + 1
                self._awaited = sum(not c.done for c in islice(calls, self._until - first))
                # Every thread of the pool may be inside a function that waits, by way of another
                # pipeline, for these very calls. Then nobody but this thread can compute them.
                timeout = pool.HELP_SECONDS
            reader.arrived.wait(timeout)
            self._until = 0
