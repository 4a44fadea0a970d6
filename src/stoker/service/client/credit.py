"""How much each task's worker may send ahead of the user."""

from collections import Counter

ELEMENTS = 65_536
"""Elements that may be under way from one worker: eight full frames of the smallest."""

BYTES = 32 << 20
"""Bytes that may be under way from one worker, about: a few batches of images."""


class Windows:
    """As much for every worker as for any other: a window that moves on as the user takes.

    Credit is counted from the beginning of a connection, so that no message can be misunderstood
    that crossed another. Methods that may give credit return the tasks that got some.
    """

    metered = False
    """Whether credit is given for what is ready only, and workers must say what is."""

    def __init__(self) -> None:
        self._granted: Counter[int] = Counter()
        self._held: Counter[int] = Counter()

    def granted(self, task_id: int) -> int:
        """How many elements the worker may send on the present connection, in all."""
        return self._granted[task_id]

    def opened(self, task_id: int) -> None:
        """The task has a new connection."""
        self._granted[task_id] = ELEMENTS - self._held[task_id]

    def ready(self, task_id: int, elements: int, returned: int) -> list[int]:
        """The worker has something and no credit for it; or credit and nothing."""
        return []

    def received(self, task_id: int, positions: int) -> None:
        """So much has come."""
        self._held[task_id] += positions

    def consumed(self, task_id: int, positions: int) -> list[int]:
        """The user has taken these."""
        self._held[task_id] -= positions
        self._granted[task_id] += positions
        return []

    def gone(self, task_id: int) -> list[int]:
        """The task has no connection any more."""
        return []


class Metered(Windows):
    """At most `limit` elements outstanding over all workers (`max_outstanding_requests`).

    Credit is given only for what was announced as ready, is given back by workers that turn out to
    have nothing, and is taken back when the connection breaks: no slow or dead worker holds any.
    """

    metered = True

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._spare = limit
        self._under_way: Counter[int] = Counter()
        self._ready: dict[int, int] = {}

    def opened(self, task_id: int) -> None:
        self._granted[task_id] = 0

    def ready(self, task_id: int, elements: int, returned: int) -> list[int]:
        self._under_way[task_id] -= returned
        self._spare += returned
        self._ready.pop(task_id, None)
        if elements:
            self._ready[task_id] = elements
        return self._grant()

    def received(self, task_id: int, positions: int) -> None:
        self._under_way[task_id] -= positions

    def consumed(self, task_id: int, positions: int) -> list[int]:
        self._spare += positions
        return self._grant()

    def gone(self, task_id: int) -> list[int]:
        self._ready.pop(task_id, None)
        self._spare += self._under_way.pop(task_id, 0)
        return self._grant()

    def _grant(self) -> list[int]:
        """Gives what is spare to those who have waited longest."""
        grown = []
        while self._spare > 0 and self._ready:
            task_id = next(iter(self._ready))
            granted = min(self._ready.pop(task_id), self._spare)
            self._spare -= granted
            self._under_way[task_id] += granted
            self._granted[task_id] += granted
            grown.append(task_id)
        return grown
