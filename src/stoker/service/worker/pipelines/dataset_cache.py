"""The datasets that a worker has fetched from the dispatcher."""

import threading
from collections.abc import Callable

from stoker.service.messages import DatasetReply

IDLE_TREE_BYTES = 64 << 20
"""Most bytes of trees kept for tasks to come, except the latest tree: each epoch is a new task."""

_LEAST_BYTES = 1 << 20
"""Bytes that a small tree counts for, so that few are kept."""


class DatasetCache:
    """Datasets by id; fetched once while tasks use them, and a few longer. Thread-safe.

    Args:
        fetch: gets a dataset from the dispatcher; may block.
    """

    def __init__(self, fetch: Callable[[str], DatasetReply]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._replies: dict[str, DatasetReply] = {}  # the latest used is the last
        self._users: dict[str, int] = {}

    def get(self, dataset_id: str) -> DatasetReply:
        """Return a dataset.

        Raises:
            StokerError: if it is not kept here and the dispatcher does not send it.
        """
        with self._lock:
            reply = self._replies.get(dataset_id)
        if reply is None:
            # Outside the lock: a dispatcher may be away for minutes. Two tasks may fetch one tree.
            reply = self._fetch(dataset_id)
        with self._lock:
            self._replies.pop(dataset_id, None)
            self._replies[dataset_id] = reply
            self._drop_idle()
        return reply

    def acquire(self, dataset_id: str) -> None:
        """Keep a dataset, once it is fetched, until `release`."""
        with self._lock:
            self._users[dataset_id] = self._users.get(dataset_id, 0) + 1

    def release(self, dataset_id: str) -> None:
        """End the use by one task."""
        with self._lock:
            self._users[dataset_id] -= 1
            if not self._users[dataset_id]:
                del self._users[dataset_id]
            self._drop_idle()

    def _drop_idle(self) -> None:
        """Drop idle datasets in excess of `IDLE_TREE_BYTES`, the least recently used first."""
        idle = [dataset_id for dataset_id in self._replies if dataset_id not in self._users]
        total = 0
        for dataset_id in reversed(idle):
            total += max(len(self._replies[dataset_id].tree), _LEAST_BYTES)
            if total > IDLE_TREE_BYTES and dataset_id != idle[-1]:
                del self._replies[dataset_id]
