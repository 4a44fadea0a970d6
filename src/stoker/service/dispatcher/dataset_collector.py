"""Removal of datasets that no job and no reader of an id needs."""

from stoker.service.dispatcher.entities import Job
from stoker.service.dispatcher.ledger import Ledger
from stoker.service.dispatcher.records import DatasetRemoved, TreeDropped

IDLE_TREE_BYTES = 64 << 20
"""Most bytes of trees kept for the next epochs of jobs without clients, except the latest tree. A
client whose tree was dropped sends it again."""


class DatasetCollector:
    """Drop trees and datasets; those registered by `RegisterDataset` are kept.

    Args:
        ledger: the state.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._idle: dict[str, None] = {}  # the dataset that became idle last is the last

    def used(self, dataset_id: str) -> None:
        """Keep the tree of a dataset that a client reads."""
        self._idle.pop(dataset_id, None)

    def maybe_idle(self, job: Job) -> None:
        """Drop trees in excess of `IDLE_TREE_BYTES` if no task or client of the job needs its tree.

        A worker that asks for a dropped tree has a task that was stopped.
        """
        dataset = self._state.datasets[job.dataset_id]
        if dataset.kept or not dataset.tree or self._needed(job.dataset_id):
            return
        self._idle.pop(job.dataset_id, None)
        self._idle[job.dataset_id] = None
        *older, _ = self._idle
        total = sum(len(self._state.datasets[dataset_id].tree) for dataset_id in self._idle)
        for dataset_id in older:
            if total <= IDLE_TREE_BYTES:
                break
            total -= len(self._state.datasets[dataset_id].tree)
            self._drop(dataset_id)

    def unused(self, job: Job) -> None:
        """Drop the tree of a job that nobody has read for `job_gc_timeout_ms`."""
        dataset = self._state.datasets[job.dataset_id]
        if not dataset.kept and dataset.tree and not self._needed(job.dataset_id):
            self._drop(job.dataset_id)

    def job_left(self, dataset_id: str) -> None:
        """Remove a dataset whose last job was removed."""
        dataset = self._state.datasets[dataset_id]
        if not dataset.kept and dataset_id not in self._state.jobs_of:
            self._idle.pop(dataset_id, None)
            self._ledger.commit(DatasetRemoved(dataset_id))

    def _needed(self, dataset_id: str) -> bool:
        jobs = self._state.jobs_of.get(dataset_id, ())
        return any(self._state.jobs[job].needs_tree for job in jobs)

    def _drop(self, dataset_id: str) -> None:
        self._idle.pop(dataset_id, None)
        self._ledger.commit(TreeDropped(dataset_id))
