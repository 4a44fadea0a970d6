"""The dispatcher's state, built from records.

Only `State.apply(record)` changes the state, and it depends on the record alone: replaying the
records rebuilds it. Leases, sessions, assigned splits and waiting requests are volatile and kept
elsewhere.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import msgspec

from stoker.service.dispatcher.entities import records as r
from stoker.service.dispatcher.entities.entities import (
    Client,
    History,
    Iteration,
    Job,
    Task,
    Worker,
)
from stoker.service.dispatcher.entities.listed_values import ListedValues
from stoker.service.dispatcher.entities.placement import process_of
from stoker.service.dispatcher.entities.places import Places
from stoker.service.dispatcher.modes.modes import mode_of

REMEMBERED_CANCELLED = 4096
"""Latest clients of cancelled jobs that are refused with the reason when they connect again."""

KEPT_BOOTS = 100
"""Latest starts of dispatchers that are known; positions of earlier ones are accepted."""

_R = TypeVar("_R")

Stored: TypeAlias = (
    History
    | r.DatasetAdded
    | r.PageStored
    | r.WorkerAdded
    | Worker
    | Job
    | Iteration
    | Client
    | Task
)
"""An entity of a snapshot. `WorkerAdded` is a worker that was lost and had tasks that are known."""

_ADD: dict[type, Callable[["State", Any], None]] = {}
_APPLY: dict[type, Callable[["State", Any], None]] = {}


def _handles(
    handlers: dict[type, Callable[["State", Any], None]], kind: type[_R]
) -> Callable[[Callable[["State", _R], None]], Callable[["State", _R], None]]:
    """Register the method that handles values of a type."""

    def register(method: Callable[["State", _R], None]) -> Callable[["State", _R], None]:
        handlers[kind] = method
        return method

    return register


class State:
    """The recorded state of a dispatcher.

    Attributes:
        jobs_of: dataset → its jobs, if it has any.
        local_workers: process → the workers that only its clients may be able to read.
        pages: digest → a page of listed splits.
        page_uses: digest → the number of uses of the page in the lists of iterations.
        places: the workers by their places among the configured addresses.
    """

    def __init__(self) -> None:
        self.history = History()
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
        self.pages: dict[bytes, bytes] = {}
        self.page_uses: Counter[bytes] = Counter()
        self.places = Places()
        self._lost_workers: dict[int, r.WorkerAdded] = {}

    # ── entities ──────────────────────────────────────────────────────────────────────────────────
    def entities(self) -> Iterator[Stored]:
        """Yield the entities, each after the entities that it refers to."""
        yield self.history
        yield from self.datasets.values()
        yield from (r.PageStored(digest, values) for digest, values in self.pages.items())
        yield from self.workers.values()
        known = {task.worker_id: task.worker for task in self.tasks.values()}
        yield from (known[x] for x in sorted(known.keys() - self.workers.keys()))
        yield from self.jobs.values()
        yield from self.iterations.values()
        yield from self.clients.values()
        yield from self.tasks.values()

    def add(self, entity: Stored) -> None:
        """Add an entity, and set what follows from the ids and states of entities.

        Raises:
            KeyError: if it refers to an entity that was not added before.
        """
        _ADD[type(entity)](self, entity)

    @_handles(_ADD, History)
    def _add_history(self, history: History) -> None:
        self.history = history

    @_handles(_ADD, r.DatasetAdded)
    def _add_dataset(self, dataset: r.DatasetAdded) -> None:
        self.datasets[dataset.dataset_id] = dataset

    @_handles(_ADD, r.PageStored)
    def _add_page(self, page: r.PageStored) -> None:
        self.pages[page.digest] = page.values

    @_handles(_ADD, Worker)
    def _add_worker(self, worker: Worker) -> None:
        added = worker.added
        self.workers[added.worker_id] = worker
        self.places.add(added)
        self.addresses[added.address] = added.worker_id
        if process := process_of(added):
            self.local_workers.setdefault(process, {})[added.worker_id] = worker

    @_handles(_ADD, r.WorkerAdded)
    def _add_lost_worker(self, added: r.WorkerAdded) -> None:
        self._lost_workers[added.worker_id] = added

    @_handles(_ADD, Job)
    def _add_job(self, job: Job) -> None:
        self.jobs[job.added.job] = job
        self.jobs_of.setdefault(job.dataset_id, set()).add(job.added.job)

    @_handles(_ADD, Iteration)
    def _add_iteration(self, iteration: Iteration) -> None:
        iteration.job = self.jobs[iteration.job_name]
        iteration.places = self.places
        self.iterations[iteration.iteration_id] = iteration
        iteration.job.iterations[iteration.epoch] = iteration
        for values in iteration.values.values():
            values.restore(self.pages)
            self.page_uses.update(digest for digest, _ in values.digests)

    @_handles(_ADD, Client)
    def _add_client(self, client: Client) -> None:
        client.iteration = self.iterations[client.iteration_id]
        client.iteration.clients[client.client_id] = client
        self.clients[client.client_id] = self.clients_by_key[client.key] = client

    @_handles(_ADD, Task)
    def _add_task(self, task: Task) -> None:
        worker = self.workers.get(task.worker_id)
        task.worker = worker.added if worker else self._lost_workers[task.worker_id]
        task.iteration = iteration = self.iterations[task.iteration_id]
        self.tasks[task.task_id] = task
        iteration.add_task(task)
        if worker is not None and not task.lost and not iteration.stopped:
            worker.tasks[task.task_id] = task

    # ── records ───────────────────────────────────────────────────────────────────────────────────
    def apply(self, record: r.Record) -> None:
        """Apply a record, which fits the state (`record_checks.check`); then it does not raise."""
        _APPLY[type(record)](self, record)

    @_handles(_APPLY, r.Booted)
    def _apply_booted(self, record: r.Booted) -> None:
        history, boots = self.history, self.history.boots
        history.journal_id, history.ids_end = record.journal_id, record.ids_end
        history.position_key = record.position_key or history.position_key
        if record.boot:  # an earlier version of stoker has none
            boots[record.boot] = history.position
        if len(boots) > KEPT_BOOTS:
            del boots[next(iter(boots))]

    @_handles(_APPLY, r.IdsReserved)
    def _apply_ids_reserved(self, record: r.IdsReserved) -> None:
        self.history.ids_end = record.ids_end

    @_handles(_APPLY, r.DatasetAdded)
    def _apply_dataset_added(self, record: r.DatasetAdded) -> None:
        self.add(record)

    @_handles(_APPLY, r.DatasetKept)
    def _apply_dataset_kept(self, record: r.DatasetKept) -> None:
        dataset = self.datasets[record.dataset_id]
        self.datasets[record.dataset_id] = msgspec.structs.replace(dataset, kept=True)

    @_handles(_APPLY, r.TreeDropped)
    def _apply_tree_dropped(self, record: r.TreeDropped) -> None:
        dataset = self.datasets[record.dataset_id]
        self.datasets[record.dataset_id] = msgspec.structs.replace(dataset, tree=b"")

    @_handles(_APPLY, r.DatasetRemoved)
    def _apply_dataset_removed(self, record: r.DatasetRemoved) -> None:
        del self.datasets[record.dataset_id]

    @_handles(_APPLY, r.WorkerAdded)
    def _apply_worker_added(self, record: r.WorkerAdded) -> None:
        self.add(Worker(record))

    @_handles(_APPLY, r.WorkerDraining)
    def _apply_worker_draining(self, record: r.WorkerDraining) -> None:
        self.workers[record.worker_id].draining = True

    @_handles(_APPLY, r.WorkerLost)
    def _apply_worker_lost(self, record: r.WorkerLost) -> None:
        worker = self.workers.pop(record.worker_id)
        del self.addresses[worker.added.address]
        self.places.remove(worker.added)
        if process := process_of(worker.added):
            self.local_workers[process].pop(record.worker_id)
            if not self.local_workers[process]:
                del self.local_workers[process]
        for task in worker.tasks.values():
            self._lose(task, record.reason, record.undelivered.get(task.task_id))

    @_handles(_APPLY, r.TaskDied)
    def _apply_task_died(self, record: r.TaskDied) -> None:
        task = self.tasks[record.task_id]
        search, known = task.iteration.poison, task.poisoned_known
        search.add(task.seed, known, record.calls, record.alone, record.how)

    @_handles(_APPLY, r.JobAdded)
    def _apply_job_added(self, record: r.JobAdded) -> None:
        self.add(Job(record, record.dataset_id))

    @_handles(_APPLY, r.JobDatasetChanged)
    def _apply_job_dataset_changed(self, record: r.JobDatasetChanged) -> None:
        job = self.jobs[record.job]
        self._leave_dataset(job)
        job.dataset_id = record.dataset_id
        self.jobs_of.setdefault(record.dataset_id, set()).add(record.job)

    def _leave_dataset(self, job: Job) -> None:
        jobs = self.jobs_of[job.dataset_id]
        jobs.discard(job.added.job)
        if not jobs:
            del self.jobs_of[job.dataset_id]

    @_handles(_APPLY, r.JobCancelled)
    def _apply_job_cancelled(self, record: r.JobCancelled) -> None:
        cancelled = self.history.cancelled
        for iteration in self.jobs[record.job].iterations.values():
            for client in iteration.clients.values():
                if client.key:
                    cancelled[client.key] = record.job
        while len(cancelled) > REMEMBERED_CANCELLED:
            del cancelled[next(iter(cancelled))]

    @_handles(_APPLY, r.IterationAdded)
    def _apply_iteration_added(self, record: r.IterationAdded) -> None:
        self.add(
            Iteration(
                iteration_id=record.iteration_id,
                job_name=record.job,
                epoch=record.epoch,
                seed=record.seed,
                mode_state=copy.deepcopy(record.mode_state),
            )
        )

    @_handles(_APPLY, r.IterationFailed)
    def _apply_iteration_failed(self, record: r.IterationFailed) -> None:
        self.iterations[record.iteration_id].error = record.error

    @_handles(_APPLY, r.PageStored)
    def _apply_page_stored(self, record: r.PageStored) -> None:
        self.add(record)

    @_handles(_APPLY, r.PageListed)
    def _apply_page_listed(self, record: r.PageListed) -> None:
        self.page_uses[record.digest] += 1
        lists = self.iterations[record.iteration_id].values
        values = lists.setdefault(record.source, ListedValues())
        values.add(record.count, self.pages[record.digest], record.digest)

    @_handles(_APPLY, r.ListingDropped)
    def _apply_listing_dropped(self, record: r.ListingDropped) -> None:
        self._drop_pages(self.iterations[record.iteration_id])

    @_handles(_APPLY, r.SplitsKnown)
    def _apply_splits_known(self, record: r.SplitsKnown) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.sources = {source.number: source for source in record.sources}

    @_handles(_APPLY, r.TaskAdded)
    def _apply_task_added(self, record: r.TaskAdded) -> None:
        iteration = self.iterations[record.iteration_id]
        task = Task(
            task_id=record.task_id,
            worker_id=record.worker_id,
            iteration_id=record.iteration_id,
            seed=record.seed,
            key=record.key,
            poisoned_known=len(iteration.poison.poisoned),
        )
        self.add(task)
        for client_id in record.readers:
            iteration.add_reader(task, self.clients[client_id], client_id)
        self._decide(iteration)

    @_handles(_APPLY, r.TaskAssigned)
    def _apply_task_assigned(self, record: r.TaskAssigned) -> None:
        task, client = self.tasks[record.task_id], self.clients[record.client_id]
        task.iteration.add_reader(task, client, record.reader_id)

    @_handles(_APPLY, r.TaskRevoked)
    def _apply_task_revoked(self, record: r.TaskRevoked) -> None:
        task = self.tasks[record.task_id]
        task.iteration.revoke_reader(task, record.client_id)

    @_handles(_APPLY, r.TaskLeft)
    def _apply_task_left(self, record: r.TaskLeft) -> None:
        task, client = self.tasks[record.task_id], self.clients[record.client_id]
        task.iteration.remove_reader(task, client, record.consumed)
        client.left_tasks[record.task_id] = None

    @_handles(_APPLY, r.WorkersWait)
    def _apply_workers_wait(self, record: r.WorkersWait) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.workers_wait = iteration.counts.workers_wait = record.waiting
        self._decide(iteration)

    @_handles(_APPLY, r.TaskEnded)
    def _apply_task_ended(self, record: r.TaskEnded) -> None:
        task = self.tasks[record.task_id]
        self._change(task, exhausted=True)
        mode_of(task.iteration.parameters).end_task(task)

    @_handles(_APPLY, r.TaskRead)
    def _apply_task_read(self, record: r.TaskRead) -> None:
        self._change(self.tasks[record.task_id], read=True)

    @_handles(_APPLY, r.TaskDelivered)
    def _apply_task_delivered(self, record: r.TaskDelivered) -> None:
        task = self.tasks[record.task_id]
        self._change(task, delivered=True)
        mode_of(task.iteration.parameters).end_task(task)

    @_handles(_APPLY, r.TaskDropped)
    def _apply_task_dropped(self, record: r.TaskDropped) -> None:
        task = self.tasks[record.task_id]
        del self.workers[task.worker.worker_id].tasks[record.task_id]
        self._lose(task, record.reason)

    @_handles(_APPLY, r.ElementsDropped)
    def _apply_elements_dropped(self, record: r.ElementsDropped) -> None:
        task = self.tasks[record.task_id]
        task.dropped = record.elements
        task.iteration.damaged[record.task_id] = task

    @_handles(_APPLY, r.SplitsBegun)
    def _apply_splits_begun(self, record: r.SplitsBegun) -> None:
        iteration = self.tasks[record.task_id].iteration
        iteration.begin_splits(record.source, record.source_epoch, record.ranges, record.task_id)

    @_handles(_APPLY, r.SplitsDone)
    def _apply_splits_done(self, record: r.SplitsDone) -> None:
        iteration = self.tasks[record.task_id].iteration
        iteration.leave_tracker(record.source, record.source_epoch, record.task_id)

    @_handles(_APPLY, r.ClientAdded)
    def _apply_client_added(self, record: r.ClientAdded) -> None:
        iteration = self.iterations[record.iteration_id]
        client = Client(
            client_id=record.client_id,
            iteration_id=record.iteration_id,
            process=record.process,
            key=record.key,
            consumer_index=record.consumer_index,
        )
        self.add(client)
        iteration.job.add_code(record.code)
        iteration.clients_opened += 1
        mode_of(iteration.parameters).sharing.client_added(client)

    @_handles(_APPLY, r.ClientRemoved)
    def _apply_client_removed(self, record: r.ClientRemoved) -> None:
        client = self.clients.pop(record.client_id)
        self.clients_by_key.pop(client.key, None)
        iteration = client.iteration
        del iteration.clients[record.client_id]
        mode_of(iteration.parameters).sharing.client_removed(client, record)
        for task in list(client.tasks.values()):
            client.iteration.remove_reader(task, client, record.consumed.get(task.task_id))

    @_handles(_APPLY, r.RoundsChanged)
    def _apply_rounds_changed(self, record: r.RoundsChanged) -> None:
        iteration = self.iterations[record.iteration_id]
        mode_of(iteration.parameters).sharing.apply(iteration, record)

    @_handles(_APPLY, r.TasksStopped)
    def _apply_tasks_stopped(self, record: r.TasksStopped) -> None:
        iteration = self.iterations[record.iteration_id]
        iteration.stopped = iteration.computed = iteration.finished = True
        self._drop_splits(iteration)
        iteration.left.clear()
        for task in iteration.by_worker.values():
            iteration.remove_readers(task)
        for worker_id, task in iteration.by_worker.items():
            del self.workers[worker_id].tasks[task.task_id]

    @_handles(_APPLY, r.IterationRemoved)
    def _apply_iteration_removed(self, record: r.IterationRemoved) -> None:
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
        iteration.count(task, -1)
        for name, value in changes.items():
            setattr(task, name, value)
        iteration.count(task)
        if task.over:
            iteration.remove_readers(task)
        self._decide(iteration)

    def _decide(self, iteration: Iteration) -> None:
        """Update what follows from the tasks of an iteration by the rules of its mode."""
        if iteration.stopped:
            return
        mode = mode_of(iteration.parameters)
        iteration.computed = mode.is_computed(iteration, iteration.counts)
        iteration.finished = mode.is_finished(iteration)
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
                self.page_uses[digest] -= 1
                if not self.page_uses[digest]:
                    del self.pages[digest], self.page_uses[digest]
        iteration.values = {}  # not cleared: `SplitListing.free_pages` frees them in steps
