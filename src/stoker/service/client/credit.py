"""How much each task's worker may send ahead of the user."""

from collections import deque

ELEMENTS = 65_536
"""Elements that may be under way from one worker: eight full frames of the smallest."""

BYTES = 8 << 20
"""Bytes that may be under way from one worker, about."""


class Windows:
    """The same window for every worker.

    Args:
        limit: ignored; every worker gets its own window.
    """

    immediate = False
    """Whether consumption is reported element by element, or when a good part of the window is."""

    def window(self, task_id: int) -> int:
        """How many elements of the task may be outstanding now."""
        return ELEMENTS

    def ready(self, task_id: int, elements: int) -> list[int]:
        """The worker has something and no credit for it. Returns the tasks whose window grew."""
        return []

    def consumed(self, task_id: int, positions: int) -> list[int]:
        """The user has taken these. Returns the *other* tasks whose window grew."""
        return []

    def gone(self, task_id: int) -> list[int]:
        """The task is over. Returns the tasks whose window grew."""
        return []


class Metered(Windows):
    """At most `limit` elements outstanding over all workers (`max_outstanding_requests`).

    A window is opened only to workers that have announced something ready, so that a slow or dead
    worker holds none of the limit.
    """

    immediate = True

    def __init__(self, limit: int) -> None:
        self._spare = limit
        self._windows: dict[int, int] = {}
        self._ready: deque[tuple[int, int]] = deque()

    def window(self, task_id: int) -> int:
        return self._windows.get(task_id, 0)

    def ready(self, task_id: int, elements: int) -> list[int]:
        self._ready = deque(entry for entry in self._ready if entry[0] != task_id)
        self._ready.append((task_id, elements))
        return self._assign()

    def consumed(self, task_id: int, positions: int) -> list[int]:
        freed = min(positions, self._windows.get(task_id, 0))
        if freed:
            self._windows[task_id] -= freed
            self._spare += freed
        return self._assign()

    def gone(self, task_id: int) -> list[int]:
        self._spare += self._windows.pop(task_id, 0)
        self._ready = deque(entry for entry in self._ready if entry[0] != task_id)
        return self._assign()

    def _assign(self) -> list[int]:
        grown = []
        while self._spare and self._ready:
            task_id, elements = self._ready.popleft()
            granted = min(elements, self._spare)
            self._windows[task_id] = self._windows.get(task_id, 0) + granted
            self._spare -= granted
            grown.append(task_id)
        return grown
