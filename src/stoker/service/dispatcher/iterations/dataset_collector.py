"""Removal of datasets that no job and no reader of an id needs."""

from stoker.service.dispatcher.entities.entities import JobEntry
from stoker.service.dispatcher.state import records as r
from stoker.service.dispatcher.state.ledger import Ledger

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
        self._users: dict[str, set[str]] = {}  # dataset → jobs that may need its tree
        self._idle: dict[str, int] = {}  # dataset → bytes; the last became idle last
        self._idle_bytes = 0

    def used(self, job: JobEntry) -> None:
        """Keep the tree of a job that a client reads."""
        self._users.setdefault(job.dataset_id, set()).add(job.added.job)
        self._forget_idle(job.dataset_id)

    def maybe_idle(self, job: JobEntry) -> None:
        """Drop trees in excess of `IDLE_TREE_BYTES` if no task or client of the job needs its tree.

        A worker that asks for a dropped tree has a task that was stopped.
        """
        if not job.needs_tree:
            self._leave(job)
            self._settle(job.dataset_id)

    def unused(self, job: JobEntry) -> None:
        """Drop the tree of a job that nobody has read for `job_gc_timeout_ms`."""
        if not job.needs_tree:
            self._leave(job)
            if job.dataset_id not in self._users:
                self._drop(job.dataset_id)

    def job_left(self, job: JobEntry, dataset_id: str) -> None:
        """Remove a dataset if `job`, which was removed or has another now, was its last one."""
        self._leave(job)
        if dataset_id in self._state.jobs_of:
            self._settle(dataset_id)
        elif not self._state.datasets[dataset_id].kept:
            self._forget_idle(dataset_id)
            self._ledger.commit(r.DatasetRemoved(dataset_id))

    def forget(self, dataset_id: str) -> None:
        """Remove a dataset that no job has, also if it is kept."""
        self._forget_idle(dataset_id)
        self._ledger.commit(r.DatasetRemoved(dataset_id))

    def _leave(self, job: JobEntry) -> None:
        users = self._users.get(job.dataset_id, set())
        users.discard(job.added.job)
        if not users:
            self._users.pop(job.dataset_id, None)

    def _settle(self, dataset_id: str) -> None:
        dataset = self._state.datasets[dataset_id]
        if dataset.kept or not dataset.tree or dataset_id in self._users:
            return
        self._forget_idle(dataset_id)
        self._idle[dataset_id] = size = max(len(dataset.tree), _LEAST_BYTES)
        self._idle_bytes += size
        while self._idle_bytes > IDLE_TREE_BYTES and len(self._idle) > 1:
            self._drop(next(iter(self._idle)))

    def _forget_idle(self, dataset_id: str) -> None:
        self._idle_bytes -= self._idle.pop(dataset_id, 0)

    def _drop(self, dataset_id: str) -> None:
        self._forget_idle(dataset_id)
        dataset = self._state.datasets[dataset_id]
        if dataset.tree and not dataset.kept:  # it may have been registered since
            self._ledger.commit(r.TreeDropped(dataset_id))
