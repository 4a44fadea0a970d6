"""How much each task's worker may send ahead of the user."""

from collections import Counter, deque

ELEMENTS = 65_536
"""Elements that may be under way from one worker: eight full frames of the smallest."""

BYTES = 32 << 20
"""Bytes that may be under way from one worker, about: a few batches of images."""


class Windows:
    """The same window for every worker.

    Methods that may let windows grow return the tasks whose did.
    """

    immediate = False
    """Whether consumption is reported frame by frame, or when a good part of the window is."""

    def window(self, task_id: int) -> int:
        """How many elements of the task may be outstanding now."""
        return ELEMENTS

    def ready(self, task_id: int, elements: int) -> list[int]:
        """The worker has something and no credit for it."""
        return []

    def received(self, task_id: int, positions: int) -> None:
        """So much of the window is here."""

    def consumed(self, task_id: int, positions: int) -> list[int]:
        """The user has taken these."""
        return []

    def gone(self, task_id: int) -> list[int]:
        """Nothing more comes for now: the task is over, or its connection broke."""
        return []


class Metered(Windows):
    """At most `limit` elements outstanding over all workers (`max_outstanding_requests`).

    A window is opened only to workers that have announced something ready, and what is not used
    when a connection breaks goes to others: a slow or dead worker holds none of the limit.
    """

    immediate = True

    def __init__(self, limit: int) -> None:
        self._spare = limit
        self._windows: Counter[int] = Counter()
        self._held: Counter[int] = Counter()
        self._ready: dict[int, int] = {}
        self._turns: deque[int] = deque()

    def window(self, task_id: int) -> int:
        return self._windows[task_id]

    def ready(self, task_id: int, elements: int) -> list[int]:
        if task_id not in self._ready:
            self._turns.append(task_id)
        self._ready[task_id] = elements
        return self._assign()

    def received(self, task_id: int, positions: int) -> None:
        self._held[task_id] += positions
        self._resize(task_id, max(self._windows[task_id], self._held[task_id]))

    def consumed(self, task_id: int, positions: int) -> list[int]:
        self._held[task_id] -= positions
        self._resize(task_id, self._windows[task_id] - positions)
        return self._assign()

    def gone(self, task_id: int) -> list[int]:
        if self._ready.pop(task_id, None) is not None:
            self._turns.remove(task_id)
        self._resize(task_id, self._held[task_id])
        return self._assign()

    def _resize(self, task_id: int, window: int) -> None:
        self._spare -= window - self._windows[task_id]
        self._windows[task_id] = window
        if not window:
            del self._windows[task_id], self._held[task_id]

    def _assign(self) -> list[int]:
        grown = []
        while self._spare > 0 and self._turns:
            task_id = self._turns.popleft()
            granted = min(self._ready.pop(task_id), self._spare)
            self._resize(task_id, self._windows[task_id] + granted)
            grown.append(task_id)
        return grown
