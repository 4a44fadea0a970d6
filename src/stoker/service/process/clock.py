"""The time that servers, sessions and clients of a process share."""

import asyncio
import threading
import time
from collections.abc import Callable


class Clock:
    """Monotonic time in seconds, and waits that end by this time.

    Servers, supervisors and the clients of an in-process server get a clock by their constructor.
    Tests pass a clock that they advance: timers of event loops and threads in `wait_for` follow.
    """

    now = staticmethod(time.monotonic)

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float
    ) -> bool:
        """Wait on a condition as `Condition.wait_for` does."""
        return condition.wait_for(predicate, timeout)

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        time.sleep(seconds)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop whose timers, and `time`, follow `now`."""
        return asyncio.new_event_loop()


CLOCK = Clock()
"""The clock of the system."""
