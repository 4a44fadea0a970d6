"""The dispatcher's state, built from records.

Only `State.apply(record)` changes the state, and it depends on the record alone: replaying the
records rebuilds it. Leases, sessions and waiting requests are volatile and kept elsewhere.
"""

import functools
from typing import Any

import msgspec

from stoker.service.dispatcher.entities import Client, Iteration, Job, Task, Worker
from stoker.service.dispatcher.listed_values import ListedValues
from stoker.service.dispatcher.modes import mode_of
from stoker.service.dispatcher.placement import process_of
from stoker.service.dispatcher.records import (
    ClientAdded,
    ClientRemoved,
    DatasetAdded,
    DatasetKept,
    DatasetRemoved,
    ElementsDropped,
    IterationAdded,
    IterationFailed,
    IterationRemoved,
    JobAdded,
    JobDatasetChanged,
    ListingDropped,
    PageListed,
    Record,
    SplitsAssigned,
    SplitsBegun,
    SplitsDone,
    SplitsKnown,
    SplitsReturned,
    TaskAdded,
    TaskAssigned,
    TaskDelivered,
    TaskDied,
    TaskDropped,
    TaskEnded,
    TaskLeft,
    TaskRead,
    TaskRevoked,
    TasksStopped,
    TreeDropped,
    WorkerAdded,
    WorkerDraining,
    WorkerLost,
    WorkersWait,
)


class State:
    """The recorded state of a dispatcher.

    Attributes:
        jobs_of: dataset → its jobs, if it has any.
        local_workers: process → the workers that only its clients may be able to read.
    """

    def __init__(self) -> None:
        self.datasets: dict[str, DatasetAdded] = {}
        self.jobs_of: dict[str, set[str]] = {}
        self.workers: dict[int, Worker] = {}
        self.addresses: dict[str, int] = {}
        self.local_workers: dict[str, dict[int, Worker]] = {}
        self.jobs: dict[str, Job] = {}
        self.iterations: dict[int, Iteration] = {}
        self.tasks: dict[int, Task] = {}
        self.clients: dict[int, Client] = {}

    @functools.singledispatchmethod
    def apply(self, record: Record) -> None:
        """Apply a record."""
        raise TypeError(f"not a record: {record!r}")

    @apply.register
    def _(self, record: DatasetAdded) -> None:
        self.datasets[record.dataset_id] = record

    @apply.register
    def _(self, record: DatasetKept) -> None:
        dataset = self.datasets[record.dataset_id]
        self.datasets[record.dataset_id] = msgspec.structs.replace(dataset, kept=True)

    @apply.register
    def _(self, record: TreeDropped) -> None:
        dataset = self.datasets[record.dataset_id]
        self.datasets[record.dataset_id] = msgspec.structs.replace(dataset, tree=b"")

    @apply.register
    def _(self, record: DatasetRemoved) -> None:
        del self.datasets[record.dataset_id]

    @apply.register
    def _(self, record: WorkerAdded) -> None:
        self.workers[record.worker_id] = worker = Worker(record)
        self.addresses[record.address] = record.worker_id
        if process := process_of(record):
            self.local_workers.setdefault(process, {})[record.worker_id] = worker

    @apply.register
    def _(self, record: WorkerDraining) -> None:
        worker = self.workers[record.worker_id]
        worker.draining = True
        for task in worker.tasks.values():
            if task.running:
                self._return_splits(task)

    @apply.register
    def _(self, record: WorkerLost) -> None:
        worker = self.workers.pop(record.worker_id)
        del self.addresses[worker.added.address]
        if process := process_of(worker.added):
            self.local_workers[process].pop(record.worker_id)
            if not self.local_workers[process]:
                del self.local_workers[process]
        for task in worker.tasks.values():
            self._lose(task, record.reason, record.undelivered.get(task.task_id))

    @apply.register
    def _(self, record: TaskDied) -> None:
        task = self.tasks[record.task_id]
        search, known = task.iteration.poison, task.poisoned_known
        search.add(task.seed, known, record.calls, record.alone, record.how)

    @apply.register
    def _(self, record: JobAdded) -> None:
        self.jobs[record.job] = Job(record, record.dataset_id)
        self.jobs_of.setdefault(record.dataset_id, set()).add(record.job)

    @apply.register
    def _(self, record: JobDatasetChanged) -> None:
        job = self.jobs[record.job]
        self._leave_dataset(job)
        job.dataset_id = record.dataset_id
        self.jobs_of.setdefault(record.dataset_id, set()).add(record.job)

    def _leave_dataset(self, job: Job) -> None:
        jobs = self.jobs_of[job.dataset_id]
        jobs.discard(job.added.job)
        if not jobs:
            del self.jobs_of[job.dataset_id]

    @apply.register
    def _(self, record: IterationAdded) -> None:
        job = self.jobs[record.job]
        iteration = Iteration(record.iteration_id, job, record.epoch, record.seed)
        self.iterations[record.iteration_id] = iteration
        job.iterations[record.epoch] = iteration

    @apply.register
    def _(self, record: IterationFailed) -> None:
        self.iterations[record.iteration_id].error = record.error

    @apply.register
    def _(self, record: PageListed) -> None:
        values = self.iterations[record.iteration_id].values
        values.setdefault(record.source, ListedValues()).add(record.count, record.values)

    @apply.register
    def _(self, record: ListingDropped) -> None:
        self.iterations[record.iteration_id].values = {}

    @apply.register
    def _(self, record: SplitsKnown) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.sources = {source.number: source for source in record.sources}

    @apply.register
    def _(self, record: TaskAdded) -> None:
        iteration = self.iterations[record.iteration_id]
        worker = self.workers[record.worker_id]
        task = Task(record.task_id, worker.added, iteration, record.seed, record.key)
        task.poisoned_known = len(iteration.poison.poisoned)
        self.tasks[task.task_id] = worker.tasks[task.task_id] = task
        iteration.tasks[task.task_id] = task
        iteration.by_worker[record.worker_id] = task
        iteration.counts.add(task)
        for client_id in record.readers:
            iteration.add_reader(task, self.clients[client_id], client_id)

    @apply.register
    def _(self, record: TaskAssigned) -> None:
        task, client = self.tasks[record.task_id], self.clients[record.client_id]
        task.iteration.add_reader(task, client, record.reader_id)

    @apply.register
    def _(self, record: TaskRevoked) -> None:
        task = self.tasks[record.task_id]
        task.iteration.revoke_reader(task, record.client_id)

    @apply.register
    def _(self, record: TaskLeft) -> None:
        task, client = self.tasks[record.task_id], self.clients[record.client_id]
        task.iteration.remove_reader(task, client, record.consumed)
        client.left_tasks.add(record.task_id)

    @apply.register
    def _(self, record: WorkersWait) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.counts.workers_wait = record.waiting
        self._decide(iteration)

    @apply.register
    def _(self, record: TaskEnded) -> None:
        task = self.tasks[record.task_id]
        self._change(task, exhausted=True)
        mode_of(task.iteration.parameters).end_task(task)

    @apply.register
    def _(self, record: TaskRead) -> None:
        self._change(self.tasks[record.task_id], read=True)

    @apply.register
    def _(self, record: TaskDelivered) -> None:
        task = self.tasks[record.task_id]
        self._change(task, delivered=True)
        mode_of(task.iteration.parameters).end_task(task)

    @apply.register
    def _(self, record: TaskDropped) -> None:
        task = self.tasks[record.task_id]
        del self.workers[task.worker.worker_id].tasks[record.task_id]
        self._lose(task, record.reason)

    @apply.register
    def _(self, record: ElementsDropped) -> None:
        task = self.tasks[record.task_id]
        task.dropped = record.elements
        task.iteration.damaged[record.task_id] = task

    @apply.register
    def _(self, record: SplitsAssigned) -> None:
        tracker = self.tasks[record.task_id].iteration.tracker(record.source, record.source_epoch)
        tracker.assign(record.splits, record.task_id)

    @apply.register
    def _(self, record: SplitsBegun) -> None:
        tracker = self.tasks[record.task_id].iteration.tracker(record.source, record.source_epoch)
        tracker.begin(record.splits)

    @apply.register
    def _(self, record: SplitsReturned) -> None:
        self._return_splits(self.tasks[record.task_id])

    @apply.register
    def _(self, record: SplitsDone) -> None:
        iteration = self.tasks[record.task_id].iteration
        iteration.leave_tracker(record.source, record.source_epoch, record.task_id)

    @apply.register
    def _(self, record: ClientAdded) -> None:
        iteration = self.iterations[record.iteration_id]
        client = Client(record.client_id, iteration, record.process, record.key)
        self.clients[client.client_id] = iteration.clients[client.client_id] = client
        iteration.job.add_code(record.code)
        iteration.clients_opened += 1

    @apply.register
    def _(self, record: ClientRemoved) -> None:
        client = self.clients.pop(record.client_id)
        del client.iteration.clients[record.client_id]
        for task in list(client.tasks.values()):
            client.iteration.remove_reader(task, client, record.consumed.get(task.task_id))

    @apply.register
    def _(self, record: TasksStopped) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.stopped = iteration.computed = iteration.finished = True
        iteration.drop_splits()
        iteration.left.clear()
        for task in iteration.by_worker.values():
            iteration.remove_readers(task)
        for worker_id, task in iteration.by_worker.items():
            del self.workers[worker_id].tasks[task.task_id]

    @apply.register
    def _(self, record: IterationRemoved) -> None:
        iteration = self.iterations.pop(record.iteration_id)
        for task_id in iteration.tasks:
            del self.tasks[task_id]
        del iteration.job.iterations[iteration.epoch]
        if not iteration.job.iterations:
            self._leave_dataset(self.jobs.pop(iteration.job.added.job))

    @staticmethod
    def _return_splits(task: Task) -> None:
        """Make the splits available that the task has not begun."""
        for tracker in task.iteration.trackers.values():
            tracker.give_back(task.task_id)

    def _lose(self, task: Task, reason: str, elements: int | None = None) -> None:
        elements = 0 if task.delivered else elements
        begun = task.iteration.splits_begun_by(task.task_id) if elements is None else 0
        self._change(task, lost=reason, splits_lost=begun, elements_lost=elements)
        task.iteration.damaged[task.task_id] = task
        del task.iteration.by_worker[task.worker.worker_id]
        mode_of(task.iteration.parameters).end_task(task)

    def _change(self, task: Task, **changes: Any) -> None:
        """Change attributes of a task, and let its mode decide what they mean."""
        iteration = task.iteration
        iteration.counts.add(task, -1)
        for name, value in changes.items():
            setattr(task, name, value)
        iteration.counts.add(task)
        if task.over:
            iteration.remove_readers(task)
        self._decide(iteration)

    @staticmethod
    def _decide(iteration: Iteration) -> None:
        """Update what follows from the tasks of an iteration by the rules of its mode."""
        if iteration.stopped:
            return
        mode = mode_of(iteration.parameters)
        iteration.computed = mode.is_computed(iteration.counts)
        iteration.finished = mode.is_finished(iteration.counts)
        if iteration.finished:
            iteration.drop_splits()
