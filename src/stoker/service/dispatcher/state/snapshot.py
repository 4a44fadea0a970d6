"""The dispatcher's state as bytes, which replace the records that led to it.

A snapshot is a list of *parts*, each the encoded list of some entities. What follows from others,
such as counts, is computed anew when it is loaded.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from stoker.errors import InvalidConfigError, StokerError
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.entities import snapshot_entities as s
from stoker.service.dispatcher.entities.epoch_set import EpochSet
from stoker.service.dispatcher.entities.listed_values import ListedValues
from stoker.service.dispatcher.entities.placement import process_of
from stoker.service.dispatcher.entities.poison import PoisonSearch
from stoker.service.dispatcher.entities.records import DatasetAdded, PageStored, Record, WorkerAdded
from stoker.service.dispatcher.entities.split_ranges import SplitRanges
from stoker.service.dispatcher.entities.split_tracker import SplitTracker
from stoker.service.dispatcher.state.state import State

PART_BYTES = 1 << 20
"""Usual size of a part."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[s.AnyEntity]).decode
_decode_unit = msgspec.msgpack.Decoder(list[Record]).decode


def replay(state: State, unit: bytes) -> None:
    """Apply the records of a unit.

    Raises:
        Exception: if they do not fit the state, or cannot be decoded.
    """
    for record in _decode_unit(unit):
        state.apply(record)
    state.position += 1


def dump(state: State) -> Iterator[bytes]:
    """Return the parts of a snapshot of `state`, which must not change meanwhile."""
    part: list[msgspec.Raw] = []
    size = 0
    for entity in _entities(state):
        encoded = _encode(entity)
        part.append(msgspec.Raw(encoded))
        size += len(encoded)
        if size >= PART_BYTES:
            yield _encode(part)
            part, size = [], 0
    yield _encode(part)


def load(parts: Iterable[bytes]) -> State:
    """Return the state of a snapshot; a new one if there are no parts.

    Raises:
        Exception: if it cannot be decoded, or is not complete.
    """
    state = State()
    lost_workers: dict[int, WorkerAdded] = {}
    orders: list[s.Iteration | s.Client] = []
    for part in parts:
        for entity in _decode(part):
            if isinstance(entity, s.Iteration | s.Client):
                orders.append(entity)
            _load(state, entity, lost_workers)
    for entity in orders:
        _load_order(state, entity)
    return state


def rebuild(parts: Iterable[bytes], units: Iterable[bytes], name: str = "the journal") -> State:
    """Return the state of a journal: of its snapshot, and the units after it.

    Args:
        parts: the parts of the snapshot.
        units: the units after it.
        name: the place of the journal, for messages.

    Raises:
        InvalidConfigError: if this version of stoker cannot read them.
    """
    try:
        state = load(parts)
        for unit in units:
            replay(state, unit)
    except StokerError:  # of the storage
        raise
    except Exception as error:
        raise InvalidConfigError(
            f"{name} does not hold the records of a dispatcher of this stoker version "
            f"({type(error).__name__}: {error}); start the version that wrote it, or begin with "
            "another `work_dir`"
        ) from error
    return state


def compact(parts: Iterable[bytes], units: Iterable[bytes]) -> Iterator[bytes]:
    """Return the parts of the snapshot that replaces a snapshot and the units after it.

    Raises:
        InvalidConfigError: as `rebuild`.
    """
    return dump(rebuild(parts, units))


def _entities(state: State) -> Iterator[s.AnyEntity]:
    """Yield all entities; each after those that `_load` needs."""
    yield s.Header(
        state.journal_id, state.ids_end, state.position, state.position_key, dict(state.boots)
    )
    yield from state.datasets.values()
    for digest, page in state.pages.items():
        yield PageStored(digest, page.values)
    for worker in state.workers.values():
        yield s.Worker(worker.added, worker.draining, lost=False)
    lost = {task.worker.worker_id: task.worker for task in state.tasks.values()}
    for worker_id in sorted(lost.keys() - state.workers.keys()):
        yield s.Worker(lost[worker_id], draining=False, lost=True)
    for job in state.jobs.values():
        yield s.Job(job.added, job.dataset_id, list(job.codes))
    if state.cancelled:
        yield s.Cancelled(list(state.cancelled.items()))
    for iteration in state.iterations.values():
        yield _dump_iteration(iteration)
    for client in state.clients.values():
        yield s.Client(
            client.client_id,
            client.iteration.iteration_id,
            client.process,
            client.key,
            list(client.tasks),
            sorted(client.left_tasks),
            client.consumer_index,
            client.starts_at,
            client.start,
        )
    for task in state.tasks.values():
        yield _dump_task(state, task)


def _dump_iteration(iteration: e.Iteration) -> s.Iteration:
    sources = iteration.sources
    return s.Iteration(
        iteration.iteration_id,
        iteration.job.added.job,
        iteration.epoch,
        iteration.seed,
        None if sources is None else list(sources.values()),
        {source: values.digests for source, values in iteration.values.items()},
        [_dump_tracker(*key, tracker) for key, tracker in iteration.trackers.items()],
        {
            source: (epochs.first_missing, sorted(epochs.later))
            for source, epochs in iteration.read_epochs.items()
        },
        dict(iteration.splits_read),
        iteration.error,
        iteration.counts.workers_wait,
        list(iteration.unread),
        list(iteration.damaged),
        list(iteration.left.items()),
        iteration.clients_opened,
        iteration.computed,
        iteration.finished,
        iteration.stopped,
        iteration.poison.deaths,
        iteration.poison.in_common,
        iteration.poison.seeds,
        iteration.poison.poisoned,
        iteration.shards,
        iteration.shard_by,
        iteration.finite_coordinated,
        iteration.rounds,
        sorted(iteration.indexes),
        iteration.left_at,
    )


def _dump_tracker(source: int, source_epoch: int, tracker: SplitTracker) -> s.Tracker:
    return s.Tracker(
        source,
        source_epoch,
        tracker.total,
        tracker.begun.ranges,
        dict(tracker.begun_counts),
        {task_id: list(ranges) for task_id, ranges in tracker.recent.items()},
        sorted(tracker.readers),
    )


def _dump_task(state: State, task: e.Task) -> s.Task:
    worker = state.workers.get(task.worker.worker_id)
    return s.Task(
        task.task_id,
        task.worker.worker_id,
        task.iteration.iteration_id,
        task.seed,
        task.key,
        task.exhausted,
        task.read,
        task.delivered,
        task.dropped,
        task.lost,
        task.splits_lost,
        task.elements_lost,
        task.readers,
        task.leaving,
        worker is not None and task.task_id in worker.tasks,
        task.iteration.by_worker.get(task.worker.worker_id) is task,
        task.poisoned_known,
    )


def _load(state: State, entity: s.AnyEntity, lost_workers: dict[int, WorkerAdded]) -> None:
    if isinstance(entity, s.Header):
        state.journal_id, state.ids_end = entity.journal_id, entity.ids_end
        state.position, state.position_key = entity.position, entity.position_key
        state.boots = dict(entity.boots)
    elif isinstance(entity, DatasetAdded):
        state.datasets[entity.dataset_id] = entity
    elif isinstance(entity, PageStored):
        state.pages[entity.digest] = e.Page(entity.values)
    elif isinstance(entity, s.Worker):
        if entity.lost:
            lost_workers[entity.added.worker_id] = entity.added
        else:
            _load_worker(state, entity)
    elif isinstance(entity, s.Job):
        job = e.Job(entity.added, entity.dataset_id, codes=dict.fromkeys(entity.codes))
        state.jobs[entity.added.job] = job
        state.jobs_of.setdefault(entity.dataset_id, set()).add(entity.added.job)
    elif isinstance(entity, s.Cancelled):
        state.cancelled.update(entity.jobs)
    elif isinstance(entity, s.Iteration):
        _load_iteration(state, entity)
    elif isinstance(entity, s.Client):
        iteration = state.iterations[entity.iteration_id]
        client = e.Client(entity.client_id, iteration, entity.process, entity.key)
        client.left_tasks = set(entity.left_tasks)
        client.consumer_index, client.starts_at = entity.consumer_index, entity.starts_at
        client.start = entity.start
        state.clients[client.client_id] = iteration.clients[client.client_id] = client
        state.clients_by_key[client.key] = client
    else:
        _load_task(state, entity, lost_workers)


def _load_worker(state: State, entity: s.Worker) -> None:
    added = entity.added
    worker = e.Worker(added, entity.draining)
    state.workers[added.worker_id] = worker
    state.addresses[added.address] = added.worker_id
    state.places.add(added)
    if process := process_of(added):
        state.local_workers.setdefault(process, {})[added.worker_id] = worker


def _load_iteration(state: State, entity: s.Iteration) -> None:
    job = state.jobs[entity.job]
    iteration = e.Iteration(
        entity.iteration_id,
        job,
        entity.epoch,
        entity.seed,
        entity.shards,
        entity.shard_by,
        state.places,
    )
    state.iterations[entity.iteration_id] = job.iterations[entity.epoch] = iteration
    if entity.sources is not None:
        iteration.sources = {source.number: source for source in entity.sources}
    for source, pages in entity.values.items():
        iteration.values[source] = values = ListedValues()
        for digest, count in pages:
            page = state.pages[digest]
            page.uses += 1
            values.add(count, page.values, digest)
    for kept in entity.trackers:
        tracker = SplitTracker(kept.total)
        tracker.begun = SplitRanges(kept.begun)
        tracker.begun_counts.update(kept.begun_counts)
        tracker.recent = {task_id: deque(ranges) for task_id, ranges in kept.recent.items()}
        tracker.readers = set(kept.readers)
        iteration.trackers[kept.source, kept.source_epoch] = tracker
    iteration.read_epochs = {
        source: EpochSet(*epochs) for source, epochs in entity.read_epochs.items()
    }
    iteration.splits_read.update(entity.splits_read)
    iteration.error = entity.error
    iteration.counts.workers_wait = entity.workers_wait
    iteration.left = dict(entity.left)
    iteration.clients_opened = entity.clients_opened
    iteration.computed, iteration.finished = entity.computed, entity.finished
    iteration.stopped = entity.stopped
    iteration.finite_coordinated = entity.finite_coordinated
    iteration.rounds, iteration.left_at = entity.rounds, entity.left_at
    iteration.indexes = set(entity.indexes)
    iteration.poison = PoisonSearch(
        entity.deaths, entity.calls_in_common, entity.seeds_of_dead, entity.poisoned
    )


def _load_task(state: State, entity: s.Task, lost_workers: dict[int, WorkerAdded]) -> None:
    iteration = state.iterations[entity.iteration_id]
    worker = state.workers.get(entity.worker_id)
    added = lost_workers[entity.worker_id] if worker is None else worker.added
    task = e.Task(
        entity.task_id,
        added,
        iteration,
        entity.seed,
        entity.key,
        entity.exhausted,
        entity.read,
        entity.delivered,
        entity.dropped,
        entity.lost,
        entity.splits_lost,
        entity.elements_lost,
        entity.poisoned_known,
        entity.readers,
        entity.leaving,
    )
    state.tasks[task.task_id] = iteration.tasks[task.task_id] = task
    iteration.counts.add(task)
    iteration.readings += len(task.readers)
    if entity.by_worker:
        iteration.by_worker[entity.worker_id] = task
    if entity.kept:
        assert worker is not None
        worker.tasks[task.task_id] = task


def _load_order(state: State, entity: s.Iteration | s.Client) -> None:
    """Restore the tasks of an iteration or a client, in their order."""
    tasks = state.tasks
    if isinstance(entity, s.Client):
        state.clients[entity.client_id].tasks = {x: tasks[x] for x in entity.tasks}
    else:
        iteration = state.iterations[entity.iteration_id]
        iteration.unread = {x: tasks[x] for x in entity.unread}
        iteration.damaged = {x: tasks[x] for x in entity.damaged}
