"""Steps of an epoch that a thread prepares while the trainer computes."""

import os
import queue
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

from stoker.adapters.steps import Step
from stoker.errors import FailedPreconditionError


class StepQueue:
    """Steps that a thread reads ahead.

    Args:
        read: returns the next step; called on the thread until it returns the end.
        unblock: ends a call of `read` that waits.
        size: steps that wait for the reader.
    """

    def __init__(self, read: Callable[[], Step], unblock: Callable[[], None], size: int) -> None:
        self._steps: queue.Queue[Step] = queue.Queue(size)
        self._end: Step | None = None
        self._read_here = read
        self._pid = os.getpid()
        stopping = threading.Event()
        thread = threading.Thread(
            target=_run, args=(read, self._steps, stopping), name="stoker-device", daemon=True
        )
        # The thread refers to no part of this object, which therefore is freed with its reader.
        self._finalizer = weakref.finalize(self, _stop, unblock, stopping, self._steps, thread)
        thread.start()

    def read(self) -> Step:
        """Wait for the next step and return the step."""
        if self._end is not None:
            return self._end
        if os.getpid() != self._pid:  # a forked child has no thread; reading raises there
            return self._read_here()
        step = self._steps.get()
        if not step.batch and step.error is None:
            self._end = step
        return step

    def close(self) -> None:
        """End the thread; idempotent."""
        self._finalizer()


def _run(read: Callable[[], Step], steps: "queue.Queue[Step]", stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            step = read()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that trains
            step = Step([], error)
        steps.put(step)
        if not step.batch and step.error is None:
            return


def _stop(
    unblock: Callable[[], None],
    stopping: threading.Event,
    steps: "queue.Queue[Step]",
    thread: threading.Thread,
) -> None:
    stopping.set()
    unblock()
    # The garbage collector may run this on any thread.
    while thread.is_alive() and thread is not threading.current_thread():
        try:  # the thread may wait for room
            steps.get(timeout=0.01)
        except queue.Empty:
            continue
    with suppress(queue.Empty):
        while True:
            steps.get_nowait()
    with suppress(queue.Full):  # another thread may wait for a step
        steps.put_nowait(Step([], FailedPreconditionError("the iterator was closed")))
