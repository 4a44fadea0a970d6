"""A clock that stands still until a test advances it."""

import asyncio
import contextlib
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from stoker.service.process.clock import Clock
from tests.serving import DEADLINE, eventually


class ManualClock(Clock):
    """Fires timers of its event loops and ends waits of threads in the order of their deadlines.

    Time passes only in its methods. Between two deadlines the event loops run until nothing but a
    later deadline or I/O would wake them. All sessions of a process are on one loop, so a heartbeat
    that is due is answered before time goes on. Threads that do not wait on the clock run in real
    time: wait for what they do with `eventually`.
    """

    def __init__(self) -> None:
        self._now = 1000.0
        self._changed = threading.Condition()
        self._selectors: list[_Selector] = []
        self._waits: dict[object, tuple[float, threading.Condition]] = {}

    def now(self) -> float:
        """Return the time, in seconds."""
        return self._now

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float
    ) -> bool:
        """Wait on a condition, whose lock the caller holds, until `advance` reaches the timeout."""
        deadline = self._now + timeout
        wait = object()
        with self._changed:
            self._waits[wait] = deadline, condition
        try:
            condition.wait_for(lambda: predicate() or self._now >= deadline)
        finally:
            with self._changed:
                del self._waits[wait]
                self._changed.notify_all()
        return predicate()

    def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed."""
        condition = threading.Condition()
        with condition:
            self.wait_for(condition, lambda: False, seconds)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop with this clock's time."""
        return _Loop(self)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        end = self._now + seconds
        while (deadline := self._next_deadline()) <= end:
            self._go_to(deadline)
        self._go_to(end)
        self._next_deadline()

    def stop_process(self, seconds: float) -> None:
        """Let `seconds` pass at once, as if this process was stopped: no timer fires in between."""
        self._go_to(self._now + seconds)

    def eventually(self, condition: Callable[[], Any]) -> bool:
        """Let time pass until `condition` is true; return whether it was within a real deadline."""
        with self.running():
            return eventually(condition)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let time pass as fast as the event loops and waits follow, in another thread."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(0.0005):  # real, so that sockets and other threads keep up
                deadline = self._next_deadline()
                if deadline < float("inf"):
                    self._go_to(deadline)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _next_deadline(self) -> float:
        """Wait until loops and threads wait; return when the first of them would go on."""
        for selector in list(self._selectors):
            selector.wake()  # a call from another thread may have arrived since it waits
        limit = time.monotonic() + DEADLINE
        with self._changed:
            while not all(selector.waits for selector in self._selectors) or any(
                deadline <= self._now for deadline, _ in self._waits.values()
            ):
                assert self._changed.wait(limit - time.monotonic()), "a loop or thread is stuck"
            return min(
                [float("inf")]
                + [selector.deadline for selector in self._selectors]
                + [deadline for deadline, _ in self._waits.values()]
            )

    def _go_to(self, now: float) -> None:
        with self._changed:
            self._now = now
            due = [condition for deadline, condition in self._waits.values() if deadline <= now]
        for condition in due:
            with condition:
                condition.notify_all()


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        selector = _Selector(clock, self)
        super().__init__(selector)
        clock._selectors.append(selector)

    def time(self) -> float:
        return self._clock.now()


class _Selector(selectors.DefaultSelector):
    """Notes when its loop has nothing to do, and how long that would last.

    Attributes:
        waits: the loop waits.
        deadline: until when, if nothing else wakes it.
    """

    def __init__(self, clock: ManualClock, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._clock = clock
        self._loop = loop
        self.waits = False
        self.deadline = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return the events; if there are none, wait for one without a timeout."""
        events = super().select(0)
        if events or timeout == 0:
            return events
        with self._clock._changed:
            self.waits = True
            self.deadline = float("inf") if timeout is None else self._clock._now + timeout
            self._clock._changed.notify_all()
        events = super().select(None)
        self.waits = False
        return events

    def wake(self) -> None:
        """Make the loop look again for what is due."""
        self.waits = False
        with contextlib.suppress(RuntimeError):  # it was closed
            self._loop.call_soon_threadsafe(lambda: None)

    def close(self) -> None:
        """Forget the loop."""
        with self._clock._changed:
            self._clock._selectors.remove(self)
            self._clock._changed.notify_all()
        super().close()
