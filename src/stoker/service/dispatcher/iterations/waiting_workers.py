"""Workers that get a task of an iteration when a client can read it."""

import math
from collections import deque
from collections.abc import Container

WAITING_SECONDS = 10.0
"""Time after which workers that wait are reported: clients of one job start at about one time."""


class WaitingWorkers:
    """Queue of workers, by id. Some of them may have been lost since."""

    def __init__(self) -> None:
        self._queue: deque[int] = deque()
        self._warn_at = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, worker_id: int, workers: Container[int], most: int) -> None:
        """Add a worker; if there are more than `most`, remove those that are not in `workers`."""
        self._queue.append(worker_id)
        if len(self._queue) > most:
            self.drop_lost(workers)

    def take(self) -> int:
        """Remove and return the one that has waited longest."""
        return self._queue.popleft()

    def clear(self) -> None:
        """Remove all."""
        self._queue.clear()

    def drop_lost(self, workers: Container[int]) -> None:
        """Remove those that are not in `workers`, or twice in the queue."""
        self._queue = deque(x for x in dict.fromkeys(self._queue) if x in workers)

    def warning_due(self, now: float, *, waits: bool) -> bool:
        """Return True once, after some have waited for `WAITING_SECONDS`.

        Args:
            now: seconds.
            waits: False if no worker needs a task now.
        """
        if self._warn_at == math.inf:
            return False
        if not waits or not self._queue:
            self._warn_at = 0.0
        elif not self._warn_at:
            self._warn_at = now + WAITING_SECONDS
        elif now >= self._warn_at:
            self._warn_at = math.inf
            return True
        return False
