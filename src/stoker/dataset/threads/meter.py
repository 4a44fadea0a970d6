"""What a call took: time, a core's time, and time in the queue for a core."""

import os
import time
from contextlib import suppress
from typing import NamedTuple

_SCHEDSTAT = "/proc/thread-self/schedstat"


class Cost(NamedTuple):
    """Of one call, in seconds.

    Attributes:
        seconds: from beginning to end.
        cpu: in which its thread had a core.
        queued: in which its thread could have used a core and had none; ``None``: not asked for.
    """

    seconds: float
    cpu: float
    queued: float | None = None


class Meter:
    """Runs from its making to `stop`, in one thread.

    Args:
        queued: also ask how long the thread was in the queue for a core, which costs 30 us; where
            the system does not say, that is 0.
    """

    __slots__ = ("_began", "_cpu", "_queued")

    def __init__(self, *, queued: bool) -> None:
        self._queued = _thread_queued() if queued else None
        self._cpu = time.thread_time()
        self._began = time.perf_counter()

    def stop(self) -> Cost:
        """What has passed since it was made."""
        seconds = time.perf_counter() - self._began
        cpu = time.thread_time() - self._cpu
        if self._queued is None:
            return Cost(seconds, cpu)
        # Asking takes time as well, and may itself have been kept waiting.
        queued = min(_thread_queued() - self._queued, max(seconds - cpu, 0.0))
        return Cost(seconds, cpu, queued)


def _thread_queued() -> float:
    """The time this thread has been in the queue for a core, in seconds; of Linux only."""
    with suppress(OSError, ValueError, IndexError):
        file = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(file, 64).split()[1]) * 1e-9
        finally:
            os.close(file)
    return 0.0
