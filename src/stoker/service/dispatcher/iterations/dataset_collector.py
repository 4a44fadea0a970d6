"""Removal of datasets that no job and no reader of an id needs."""

from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.state import records as r

IDLE_TREE_BYTES = 64 << 20
"""Most bytes of trees kept for the next epochs of jobs without clients, except the latest tree. A
client whose tree was dropped sends it again."""

_LEAST_BYTES = 64 << 10
"""Bytes that a small tree counts for, so that not too many are kept."""


class DatasetCollector:
    """Drop trees and datasets; those registered by `RegisterDataset` are kept.

    Args:
        ledger: the state.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._idle: dict[str, int] = {}  # dataset → bytes; the last became idle last
        self._idle_bytes = 0

    def used(self, dataset_id: str) -> None:
        """Keep the tree of a dataset that a client begins to read."""
        self._idle_bytes -= self._idle.pop(dataset_id, 0)

    def maybe_idle(self, dataset_id: str) -> None:
        """Drop trees in excess of `IDLE_TREE_BYTES` if no job needs that of the dataset."""
        dataset = self._state.datasets[dataset_id]
        if dataset.kept or not dataset.tree or self._is_needed(dataset_id):
            return
        self.used(dataset_id)
        self._idle[dataset_id] = size = max(len(dataset.tree), _LEAST_BYTES)
        self._idle_bytes += size
        # The latest tree stays, however large: a job without clients between two epochs needs it
        # again.
        while self._idle_bytes > IDLE_TREE_BYTES and len(self._idle) > 1:
            self._drop(next(iter(self._idle)))

    def unused(self, dataset_id: str) -> None:
        """Drop the tree of a dataset whose job nobody has read for `job_gc_timeout_ms`."""
        if not self._is_needed(dataset_id):
            self._drop(dataset_id)

    def job_left(self, dataset_id: str) -> None:
        """Remove a dataset if the job that was removed, or has another now, was its last job."""
        if dataset_id in self._state.jobs_of:
            self.maybe_idle(dataset_id)
        elif not self._state.datasets[dataset_id].kept:
            self.forget(dataset_id)

    def forget(self, dataset_id: str) -> None:
        """Remove a dataset that no job has, also if it is kept."""
        self.used(dataset_id)
        self._ledger.commit(r.DatasetRemoved(dataset_id))

    def _is_needed(self, dataset_id: str) -> bool:
        """Return whether a worker may ask for the tree, unless its task was stopped."""
        jobs = self._state.jobs_of.get(dataset_id, ())
        return any(self._state.jobs[name].needs_tree for name in jobs)

    def _drop(self, dataset_id: str) -> None:
        self.used(dataset_id)
        dataset = self._state.datasets[dataset_id]
        if dataset.tree and not dataset.kept:  # it may have been registered since
            self._ledger.commit(r.TreeDropped(dataset_id))
