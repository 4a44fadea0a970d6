"""Credit: the elements and bytes that each task's worker may send ahead of the consumer."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TypeAlias

from stoker.service.client.flow.flow_control import CONNECTION_BYTES, FlowControl
from stoker.service.client.flow.grants import Grants
from stoker.service.client.flow.pace import Pace
from stoker.wire import frames as f

ELEMENTS = 65_536
"""Elements in flight from one worker, at most: eight full frames.

A frame is a quarter of the window and at most 8,192 elements, so more would only be buffered.
Scalars are consumed at 8 million/s (benchmarks/README.md): 65,536 are 8 ms of work.
"""

BUFFER_BYTES = 256 << 20
"""Default of the bytes in flight from all workers: four workers with full connections."""

WORKERS = 128
"""Workers for which bytes are kept free until they send: 0.5 MiB each of 256."""


NeededFirst: TypeAlias = Callable[[Collection[int], Callable[[int], int]], int | None]
"""Signature of `Order.needed_first`."""


class WindowedCredit(Grants):
    """Keeps about 0.1 s of the consumer's work in flight, shared among the workers.

    Elements are divided evenly among the workers that may have some. A quarter of the bytes is
    divided evenly among `WORKERS` workers, and the rest evenly among those that have sent
    something. No byte is granted twice: if a worker is granted fewer bytes than before, the others
    get the difference as its elements are consumed.

    Args:
        buffer_bytes: bytes sent and not consumed, over all workers: each worker may exceed its part
            by one element.
        gradual: grant no elements before `begin`, and few at first.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, *, gradual: bool = False) -> None:
        self._buffer_bytes = buffer_bytes
        self._pace = Pace(gradual=gradual)
        self._waits = gradual
        self._flows: defaultdict[int, FlowControl] = defaultdict(FlowControl)

    def message(self, task_id: int, consumed: int) -> f.Credit:
        return f.Credit(consumed, *self.grant(task_id))

    def grant(self, task_id: int) -> tuple[int, int]:
        """Return the credit to send to the worker: elements on this connection, and bytes."""
        flow = self._flows[task_id]
        elements, nbytes = self._elements(task_id), self._bytes(flow)
        flow.grant(elements, nbytes)
        return elements, nbytes

    def extend(self, task_id: int, elements: int) -> None:
        flow = self._flows[task_id]
        flow.granted = max(flow.granted, flow.received + elements)

    @property
    def window(self) -> int:
        return max(1, self._pace.window)

    def begin(self) -> list[int]:
        if not self._waits:
            return []
        self._waits = False
        self._pace.begin()
        return list(self._flows)

    def connected(self, task_id: int, max_bytes: int = CONNECTION_BYTES) -> None:
        self._flows[task_id].open(max_bytes)

    def ended(self, task_id: int) -> None:
        self._flows[task_id].live = False

    def received(self, task_id: int, positions: int, waited: float) -> None:
        self._flows[task_id].receive(positions)
        self._pace.waited(waited)

    def consumed(
        self, task_id: int, positions: int, nbytes: int, seconds: float, now: float
    ) -> list[int]:
        flow = self._flows[task_id]
        due = flow.due(positions, nbytes, 4)
        flow.consume(positions, nbytes)
        self._pace.consumed(positions, seconds, now)
        return [task_id] if due else []

    def due(self, task_id: int, positions: int, nbytes: int) -> bool:
        return self._flows[task_id].due(positions, nbytes, 4)

    def urgent(self, task_id: int, positions: int, nbytes: int) -> bool:
        return self._flows[task_id].due(positions, nbytes, 2)

    def disconnected(self, task_id: int) -> list[int]:
        self._flows[task_id].live = False
        return []

    def _bytes(self, flow: FlowControl) -> int:
        """Return how many bytes may be in flight from this worker."""
        # Shares by supply were removed: a fast worker beside 99 slow workers gained 10 %.
        # (docs/decisions/021)
        even = max(1, self._buffer_bytes // (4 * WORKERS))
        # A worker that has not sent gets a part of the reserve only: 128 of them must fit.
        if not flow.received:
            return min(flow.max_bytes, even)
        rest = self._buffer_bytes * 3 // 4
        others = [x for x in self._flows.values() if x is not flow]
        free = max(0, rest - sum(max(0, x.reserved - even) for x in others))
        share = rest // (1 + sum(x.live and x.received > 0 for x in others))
        return min(flow.max_bytes, even + min(free, share))

    def _elements(self, task_id: int) -> int:
        flow = self._flows[task_id]
        live = max(1, sum(x.live for x in self._flows.values()))
        # Even shares; never less than granted before, as the worker may have sent it.
        # (docs/decisions/021)
        window = min(ELEMENTS, math.ceil(self._pace.window / live))
        return max(flow.granted, flow.received - flow.buffered + window)


class LimitedCredit(WindowedCredit):
    """At most `max_outstanding_requests` elements outstanding over all workers.

    Credit is granted only for announced elements, is returned by workers that turn out to have
    none, and is revoked when the connection breaks: a slow or dead worker keeps none.

    Args:
        max_outstanding_requests: elements that may be outstanding.
        buffer_bytes: as for `WindowedCredit`.
        needed_first: chooses the task that gets credit next, as `Order.needed_first`.
        gradual: grant no elements before `begin`.
        singly: it chooses for one element, not for all that a task has ready.
    """

    metered = True  # credit is granted only for elements that workers have announced as ready

    def __init__(
        self,
        max_outstanding_requests: int,
        buffer_bytes: int = BUFFER_BYTES,
        needed_first: NeededFirst = lambda tasks, _: next(iter(tasks)),
        *,
        singly: bool = False,
        gradual: bool = False,
    ) -> None:
        super().__init__(buffer_bytes, gradual=gradual)
        self._singly = singly
        self._needed_first = needed_first
        self._limit = self._free = max_outstanding_requests
        self._ready: dict[int, int] = {}
        self._exempt: set[int] = set()

    def extend(self, task_id: int, elements: int) -> None:
        flow = self._flows[task_id]
        outstanding = flow.granted - flow.received + flow.buffered
        super().extend(task_id, elements)
        if task_id not in self._exempt:
            # Elements that arrive ahead of their turns must not take the credit of other tasks.
            self._free += outstanding
            self._exempt.add(task_id)
            self._ready.pop(task_id, None)

    @property
    def window(self) -> int:
        return self._limit

    def begin(self) -> list[int]:
        return self._grant_free() if super().begin() else []

    def ready(self, task_id: int, elements: int, returned: int) -> list[int]:
        self._flows[task_id].received += returned
        self._release(task_id, returned)
        self._ready.pop(task_id, None)
        if elements and task_id not in self._exempt:
            self._ready[task_id] = elements
        return self._grant_free()

    def due(self, task_id: int, positions: int, nbytes: int) -> bool:
        return True

    def urgent(self, task_id: int, positions: int, nbytes: int) -> bool:
        return True

    def consumed(
        self, task_id: int, positions: int, nbytes: int, seconds: float, now: float
    ) -> list[int]:
        super().consumed(task_id, positions, nbytes, seconds, now)
        self._release(task_id, positions)
        return [*self._grant_free(), task_id]

    def disconnected(self, task_id: int) -> list[int]:
        super().disconnected(task_id)
        flow = self._flows[task_id]
        self._ready.pop(task_id, None)
        # A slow or dead worker keeps no credit: the others get what it has not used.
        self._release(task_id, flow.granted - flow.received)
        flow.granted = flow.received
        return self._grant_free()

    def _release(self, task_id: int, positions: int) -> None:
        """Make credit free again, unless it does not count."""
        if task_id not in self._exempt:
            self._free += positions

    def _elements(self, task_id: int) -> int:
        return self._flows[task_id].granted

    def _grant_free(self) -> list[int]:
        """Grant free credit to the tasks that are needed first; return these tasks."""
        tasks = []
        while self._free > 0 and self._ready and not self._waits:
            task_id = self._needed_first(self._ready, self._coming)
            if task_id is None:
                break
            ready = self._ready.pop(task_id)
            granted = min(ready, 1 if self._singly else self._free)
            # In turns all tasks need one element each before any needs a second.
            if self._singly and ready > granted:
                self._ready[task_id] = ready - granted
            self._free -= granted
            self._flows[task_id].granted += granted
            tasks.append(task_id)
        return tasks

    def _coming(self, task_id: int) -> int:
        """Return the number of elements that a worker may send, or has sent."""
        flow = self._flows[task_id]
        return flow.granted - flow.received

    def order_changed(self) -> list[int]:
        return self._grant_free()


def new_credit(
    max_outstanding_requests: int | None,
    buffer_bytes: int,
    needed_first: NeededFirst,
    *,
    singly: bool,
    gradual: bool,
) -> WindowedCredit:
    """Return the credit of a client; arguments as of `LimitedCredit`."""
    if max_outstanding_requests is None:
        return WindowedCredit(buffer_bytes, gradual=gradual)
    return LimitedCredit(
        max_outstanding_requests, buffer_bytes, needed_first, singly=singly, gradual=gradual
    )
