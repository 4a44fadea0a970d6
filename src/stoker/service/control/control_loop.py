"""The event loop thread of the process, on which the control plane runs.

All servers and sessions of a process that have one clock share one loop. It runs while at least one
of them holds it, so a process that uses no service has no such thread; a forked child starts
without one.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from stoker.service.process.clock import CLOCK, Clock

T = TypeVar("T")


class ControlLoop:
    """An event loop on a thread; started by the first `acquire`, ended by the last `release`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._holders = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; `release` it after use."""
        with self._lock:
            if self._loop is None:
                self._loop = self._clock.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="stoker-control", daemon=True
                )
                self._thread.start()
            self._holders += 1
            return self._loop

    def release(self) -> None:
        """End the loop if it has no other holder, and wait for its thread."""
        with self._lock:
            self._holders -= 1
            if self._holders or self._loop is None:
                return
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join()


@contextmanager
def holding_control_loop(clock: Clock = CLOCK) -> Iterator[asyncio.AbstractEventLoop]:
    """Keep the loop's thread running between calls."""
    control = control_loop(clock)
    loop = control.acquire()
    try:
        yield loop
    finally:
        control.release()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        with suppress(asyncio.TimeoutError):  # a name server may not answer
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_default_executor(), 2.0))
        loop.close()


_controls: dict[Clock, ControlLoop] = {}


def control_loop(clock: Clock = CLOCK) -> ControlLoop:
    """Return the control loop of this process whose timers follow `clock`."""
    return _controls.setdefault(clock, ControlLoop(clock))


def _after_fork() -> None:
    # The child has no such thread, and its copy of the lock may be held forever.
    _controls.clear()


os.register_at_fork(after_in_child=_after_fork)


def run_on(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], timeout: float | None
) -> T:
    """Run a coroutine on the loop's thread from another thread and return its result."""
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result(timeout)
    except BaseException:
        future.cancel()
        raise


async def until_first_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one ends, cancel the others, and raise the exception of the first."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
