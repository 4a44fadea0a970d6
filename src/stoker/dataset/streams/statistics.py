"""Counters of one epoch that its streams add to."""

import threading
from collections.abc import Callable


class Statistics:
    """Counts and amounts by name, of a whole pass; any stream of it adds, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._amounts: list[tuple[str, Callable[[], int]]] = []

    def add(self, name: str, count: int) -> None:
        """Adds to a count; the first time, from 0."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + count

    def watch(self, name: str, amount: Callable[[], int]) -> None:
        """Has `amount` called whenever somebody looks: what goes up and down, such as bytes held.

        Where several streams watch under one name, they are added up.
        """
        with self._lock:
            self._amounts.append((name, amount))

    def counts(self) -> dict[str, int]:
        """What was counted so far."""
        with self._lock:
            return dict(self._counts)

    def snapshot(self) -> dict[str, int]:
        """What was counted so far, and the amounts now."""
        with self._lock:
            amounts = list(self._amounts)
        found = self.counts()
        for name, amount in amounts:  # not under the lock: they take others
            found[name] = found.get(name, 0) + amount()
        return found
