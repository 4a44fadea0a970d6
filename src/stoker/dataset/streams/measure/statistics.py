"""Counters of one epoch that its streams add to."""

import threading
from collections.abc import Callable


class Statistics:
    """Counters and amounts of one epoch, by name; its streams update them from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._amounts: list[tuple[str, Callable[[], int]]] = []

    def add(self, name: str, count: int) -> None:
        """Add to a counter, which starts at 0."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + count

    def watch(self, name: str, amount: Callable[[], int]) -> None:
        """Register an amount, such as the buffered bytes; `amount` returns its present value.

        Those of several streams with one name are added.
        """
        with self._lock:
            self._amounts.append((name, amount))

    def count(self, name: str) -> int:
        """Return a counter."""
        with self._lock:
            return self._counts.get(name, 0)

    def counts(self) -> dict[str, int]:
        """Return the counters."""
        with self._lock:
            return dict(self._counts)

    def snapshot(self) -> dict[str, int]:
        """Return the counters and the present amounts."""
        with self._lock:
            amounts = list(self._amounts)
        found = self.counts()
        for name, amount in amounts:  # not under the lock: they acquire others
            found[name] = found.get(name, 0) + amount()
        return found
