"""The dispatcher's state, built from records.

Only `State.apply(record)` changes the state, and it depends on the record alone: replaying the
records rebuilds it. Leases, sessions, assigned splits and waiting requests are volatile and kept
elsewhere.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import Client, Iteration, Job, Page, Task, Worker
from stoker.service.dispatcher.entities.listed_values import ListedValues
from stoker.service.dispatcher.entities.placement import process_of
from stoker.service.dispatcher.entities.places import Places
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.messages import RoundPosition

REMEMBERED_CANCELLED = 4096
"""Latest clients of cancelled jobs that are refused with the reason when they connect again."""

KEPT_BOOTS = 100
"""Latest starts of dispatchers that are known; positions of earlier ones are accepted."""

_R = TypeVar("_R")

_APPLY: dict[type, Callable[["State", Any], None]] = {}


def _applies(
    kind: type[_R],
) -> Callable[[Callable[["State", _R], None]], Callable[["State", _R], None]]:
    """Register the method that applies records of a type."""

    def register(method: Callable[["State", _R], None]) -> Callable[["State", _R], None]:
        _APPLY[kind] = method
        return method

    return register


class State:
    """The recorded state of a dispatcher.

    Attributes:
        journal_id: identifies this history among those of other dispatchers; empty before `Booted`.
        ids_end: no id from here on was given.
        position: the number of units of the journal, snapshots included; each is one decision.
        position_key: signs positions.
        boots: each start of a dispatcher → the position before its first unit; the last
            `KEPT_BOOTS`.
        jobs_of: dataset → its jobs, if it has any.
        local_workers: process → the workers that only its clients may be able to read.
        cancelled: key of a client whose job was cancelled → that job.
        pages: digest → a page of listed splits.
        places: the workers by their places among the configured addresses.
    """

    def __init__(self) -> None:
        self.journal_id = ""
        self.ids_end = 0
        self.position = 0
        self.position_key = b""
        self.boots: dict[int, int] = {}
        self.datasets: dict[str, r.DatasetAdded] = {}
        self.jobs_of: dict[str, set[str]] = {}
        self.workers: dict[int, Worker] = {}
        self.addresses: dict[str, int] = {}
        self.local_workers: dict[str, dict[int, Worker]] = {}
        self.jobs: dict[str, Job] = {}
        self.iterations: dict[int, Iteration] = {}
        self.tasks: dict[int, Task] = {}
        self.clients: dict[int, Client] = {}
        self.clients_by_key: dict[bytes, Client] = {}
        self.cancelled: dict[bytes, str] = {}
        self.pages: dict[bytes, Page] = {}
        self.places = Places()

    def apply(self, record: r.Record) -> None:
        """Apply a record, which fits the state (`record_checks.check`); then it does not raise."""
        _APPLY[type(record)](self, record)

    @_applies(r.Booted)
    def _(self, record: r.Booted) -> None:
        self.journal_id, self.ids_end = record.journal_id, record.ids_end
        self.position_key = record.position_key or self.position_key
        if record.boot:  # an earlier version of stoker has none
            self.boots[record.boot] = self.position
        if len(self.boots) > KEPT_BOOTS:
            del self.boots[next(iter(self.boots))]

    @_applies(r.IdsReserved)
    def _(self, record: r.IdsReserved) -> None:
        self.ids_end = record.ids_end

    @_applies(r.DatasetAdded)
    def _(self, record: r.DatasetAdded) -> None:
        self.datasets[record.dataset_id] = record

    @_applies(r.DatasetKept)
    def _(self, record: r.DatasetKept) -> None:
        dataset = self.datasets[record.dataset_id]
        self.datasets[record.dataset_id] = msgspec.structs.replace(dataset, kept=True)

    @_applies(r.TreeDropped)
    def _(self, record: r.TreeDropped) -> None:
        dataset = self.datasets[record.dataset_id]
        self.datasets[record.dataset_id] = msgspec.structs.replace(dataset, tree=b"")

    @_applies(r.DatasetRemoved)
    def _(self, record: r.DatasetRemoved) -> None:
        del self.datasets[record.dataset_id]

    @_applies(r.WorkerAdded)
    def _(self, record: r.WorkerAdded) -> None:
        self.workers[record.worker_id] = worker = Worker(record)
        self.places.add(record)
        self.addresses[record.address] = record.worker_id
        if process := process_of(record):
            self.local_workers.setdefault(process, {})[record.worker_id] = worker

    @_applies(r.WorkerDraining)
    def _(self, record: r.WorkerDraining) -> None:
        self.workers[record.worker_id].draining = True

    @_applies(r.WorkerLost)
    def _(self, record: r.WorkerLost) -> None:
        worker = self.workers.pop(record.worker_id)
        del self.addresses[worker.added.address]
        self.places.remove(worker.added)
        if process := process_of(worker.added):
            self.local_workers[process].pop(record.worker_id)
            if not self.local_workers[process]:
                del self.local_workers[process]
        for task in worker.tasks.values():
            self._lose(task, record.reason, record.undelivered.get(task.task_id))

    @_applies(r.TaskDied)
    def _(self, record: r.TaskDied) -> None:
        task = self.tasks[record.task_id]
        search, known = task.iteration.poison, task.poisoned_known
        search.add(task.seed, known, record.calls, record.alone, record.how)

    @_applies(r.JobAdded)
    def _(self, record: r.JobAdded) -> None:
        self.jobs[record.job] = Job(record, record.dataset_id)
        self.jobs_of.setdefault(record.dataset_id, set()).add(record.job)

    @_applies(r.JobDatasetChanged)
    def _(self, record: r.JobDatasetChanged) -> None:
        job = self.jobs[record.job]
        self._leave_dataset(job)
        job.dataset_id = record.dataset_id
        self.jobs_of.setdefault(record.dataset_id, set()).add(record.job)

    def _leave_dataset(self, job: Job) -> None:
        jobs = self.jobs_of[job.dataset_id]
        jobs.discard(job.added.job)
        if not jobs:
            del self.jobs_of[job.dataset_id]

    @_applies(r.JobCancelled)
    def _(self, record: r.JobCancelled) -> None:
        for iteration in self.jobs[record.job].iterations.values():
            for client in iteration.clients.values():
                if client.key:
                    self.cancelled[client.key] = record.job
        while len(self.cancelled) > REMEMBERED_CANCELLED:
            del self.cancelled[next(iter(self.cancelled))]

    @_applies(r.IterationAdded)
    def _(self, record: r.IterationAdded) -> None:
        job = self.jobs[record.job]
        iteration = Iteration(
            record.iteration_id,
            job,
            record.epoch,
            record.seed,
            record.shards,
            record.shard_by,
            self.places,
        )
        iteration.finite_coordinated = record.finite_coordinated
        self.iterations[record.iteration_id] = iteration
        job.iterations[record.epoch] = iteration

    @_applies(r.IterationFailed)
    def _(self, record: r.IterationFailed) -> None:
        self.iterations[record.iteration_id].error = record.error

    @_applies(r.PageStored)
    def _(self, record: r.PageStored) -> None:
        self.pages[record.digest] = Page(record.values)

    @_applies(r.PageListed)
    def _(self, record: r.PageListed) -> None:
        page = self.pages[record.digest]
        page.uses += 1
        lists = self.iterations[record.iteration_id].values
        values = lists.setdefault(record.source, ListedValues())
        values.add(record.count, page.values, record.digest)

    @_applies(r.ListingDropped)
    def _(self, record: r.ListingDropped) -> None:
        self._drop_pages(self.iterations[record.iteration_id])

    @_applies(r.SplitsKnown)
    def _(self, record: r.SplitsKnown) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.sources = {source.number: source for source in record.sources}

    @_applies(r.TaskAdded)
    def _(self, record: r.TaskAdded) -> None:
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
        self._decide(iteration)

    @_applies(r.TaskAssigned)
    def _(self, record: r.TaskAssigned) -> None:
        task, client = self.tasks[record.task_id], self.clients[record.client_id]
        task.iteration.add_reader(task, client, record.reader_id)

    @_applies(r.TaskRevoked)
    def _(self, record: r.TaskRevoked) -> None:
        task = self.tasks[record.task_id]
        task.iteration.revoke_reader(task, record.client_id)

    @_applies(r.TaskLeft)
    def _(self, record: r.TaskLeft) -> None:
        task, client = self.tasks[record.task_id], self.clients[record.client_id]
        task.iteration.remove_reader(task, client, record.consumed)
        client.left_tasks.add(record.task_id)

    @_applies(r.WorkersWait)
    def _(self, record: r.WorkersWait) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.counts.workers_wait = record.waiting
        self._decide(iteration)

    @_applies(r.TaskEnded)
    def _(self, record: r.TaskEnded) -> None:
        task = self.tasks[record.task_id]
        self._change(task, exhausted=True)
        mode_of(task.iteration.parameters).end_task(task)

    @_applies(r.TaskRead)
    def _(self, record: r.TaskRead) -> None:
        self._change(self.tasks[record.task_id], read=True)

    @_applies(r.TaskDelivered)
    def _(self, record: r.TaskDelivered) -> None:
        task = self.tasks[record.task_id]
        self._change(task, delivered=True)
        mode_of(task.iteration.parameters).end_task(task)

    @_applies(r.TaskDropped)
    def _(self, record: r.TaskDropped) -> None:
        task = self.tasks[record.task_id]
        del self.workers[task.worker.worker_id].tasks[record.task_id]
        self._lose(task, record.reason)

    @_applies(r.ElementsDropped)
    def _(self, record: r.ElementsDropped) -> None:
        task = self.tasks[record.task_id]
        task.dropped = record.elements
        task.iteration.damaged[record.task_id] = task

    @_applies(r.SplitsBegun)
    def _(self, record: r.SplitsBegun) -> None:
        iteration = self.tasks[record.task_id].iteration
        iteration.begin_splits(record.source, record.source_epoch, record.ranges, record.task_id)

    @_applies(r.SplitsDone)
    def _(self, record: r.SplitsDone) -> None:
        iteration = self.tasks[record.task_id].iteration
        iteration.leave_tracker(record.source, record.source_epoch, record.task_id)

    @_applies(r.ClientAdded)
    def _(self, record: r.ClientAdded) -> None:
        iteration = self.iterations[record.iteration_id]
        client = Client(record.client_id, iteration, record.process, record.key)
        self.clients[client.client_id] = iteration.clients[client.client_id] = client
        self.clients_by_key[record.key] = client
        iteration.job.add_code(record.code)
        iteration.clients_opened += 1
        if record.consumer_index is not None:
            client.consumer_index = record.consumer_index
            client.starts_at = _start_of(iteration, record.consumer_index)
            iteration.indexes.add(record.consumer_index)

    @_applies(r.ClientRemoved)
    def _(self, record: r.ClientRemoved) -> None:
        client = self.clients.pop(record.client_id)
        self.clients_by_key.pop(client.key, None)
        iteration = client.iteration
        del iteration.clients[record.client_id]
        if client.consumer_index is not None:
            _leave_rounds(iteration, client.consumer_index, record.position)
        for task in list(client.tasks.values()):
            client.iteration.remove_reader(task, client, record.consumed.get(task.task_id))

    @_applies(r.RoundsChanged)
    def _(self, record: r.RoundsChanged) -> None:
        iteration, change = self.iterations[record.iteration_id], record.change
        iteration.rounds = [x for x in iteration.rounds if x.number >= record.keep_from]
        iteration.rounds.append(change)
        for client_id, (number, position) in record.starts.items():
            client = iteration.clients[client_id]
            client.starts_at, client.start = number, position
            if client.consumer_index is not None:
                iteration.left_at.pop(client.consumer_index, None)

    @_applies(r.TasksStopped)
    def _(self, record: r.TasksStopped) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.stopped = iteration.computed = iteration.finished = True
        self._drop_splits(iteration)
        iteration.left.clear()
        for task in iteration.by_worker.values():
            iteration.remove_readers(task)
        for worker_id, task in iteration.by_worker.items():
            del self.workers[worker_id].tasks[task.task_id]

    @_applies(r.IterationRemoved)
    def _(self, record: r.IterationRemoved) -> None:
        iteration = self.iterations.pop(record.iteration_id)
        for task_id in iteration.tasks:
            del self.tasks[task_id]
        del iteration.job.iterations[iteration.epoch]
        if not iteration.job.iterations:
            self._leave_dataset(self.jobs.pop(iteration.job.added.job))

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

    def _decide(self, iteration: Iteration) -> None:
        """Update what follows from the tasks of an iteration by the rules of its mode."""
        if iteration.stopped:
            return
        mode = mode_of(iteration.parameters)
        iteration.computed = mode.is_computed(iteration.counts)
        iteration.finished = mode.is_finished(iteration.counts)
        if iteration.finished:
            self._drop_splits(iteration)

    def _drop_splits(self, iteration: Iteration) -> None:
        """Drop the splits: no task will ask for any."""
        self._drop_pages(iteration)
        iteration.trackers.clear()
        iteration.read_epochs.clear()
        iteration.splits_read.clear()

    def _drop_pages(self, iteration: Iteration) -> None:
        for values in iteration.values.values():
            for digest, _ in values.digests:
                page = self.pages[digest]
                page.uses -= 1
                if not page.uses:
                    del self.pages[digest]
        iteration.values = {}  # not cleared: `SplitListing.free_pages` frees them in steps


def _start_of(iteration: Iteration, consumer_index: int) -> int | None:
    """Return the change at which a new consumer begins; ``None`` if that is to be agreed on."""
    rounds = iteration.rounds
    if not rounds:
        return 0
    if consumer_index not in iteration.indexes and rounds[0].number == 0:
        return 0
    return rounds[-1].number if rounds[-1].last else None


def _leave_rounds(
    iteration: Iteration, consumer_index: int, position: RoundPosition | None
) -> None:
    """Record the position of a consumer that has left, for its successor."""
    left_at = iteration.left_at
    if position is not None:
        # Workers keep what a consumer lacks as long as the others are one round ahead at most.
        for index in [x for x, other in left_at.items() if other.slot < position.slot - 1]:
            del left_at[index]
        left_at[consumer_index] = position
    elif all(other.starts_at is None for other in iteration.clients.values()):
        left_at.clear()
