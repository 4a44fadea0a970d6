"""The rules of each processing mode; no other file of the dispatcher knows modes.

A mode decides which tasks an iteration has, what `TaskStart` carries, which tasks a client reads,
when an iteration has ended, what the loss of a task means and when a job is collected. Modes have
no state: what an iteration has done is in the dispatcher's state, so that replaying records
rebuilds it.
"""

import functools
from collections.abc import Sequence

import msgspec

from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.dataset.tree.node import INFINITE_CARDINALITY
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, ShardBy
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.entities.entities import (
    Client,
    Iteration,
    Job,
    Task,
    TaskCounts,
    Worker,
)
from stoker.service.dispatcher.entities.records import DatasetAdded, TaskDied, WorkerAdded
from stoker.service.dispatcher.entities.split_tracker import split_total
from stoker.service.dispatcher.modes import static_sharding as static
from stoker.service.dispatcher.modes.placement import (
    NO_LOCAL_CLIENT,
    can_read,
    can_run,
    is_private,
    process_of,
)
from stoker.service.rules.checks import (
    check_cacheable,
    check_coordinated,
    check_repetition,
    check_splittable,
    deleted,
    frees_local_tasks,
)
from stoker.service.rules.processing_modes import (
    STATIC_POLICIES,
    ShardingPolicy,
    parse_processing_mode,
)


class Mode:
    """The rules that modes share unless they override them.

    Args:
        buffer: decides which client of a task gets which element.
        policy: the policy, where a mode has several.
    """

    def __init__(
        self,
        buffer: m.BufferPolicy = m.BufferPolicy.FIRST_COME,
        policy: ShardingPolicy = ShardingPolicy.OFF,
    ) -> None:
        self._buffer = buffer
        self._policy = policy

    @property
    def coordinated(self) -> bool:
        """True if clients are consumers that read all tasks in turns, as their rounds go."""
        return self._buffer is m.BufferPolicy.ROUND_ROBIN

    def check(self, dataset: m.RegisterDataset | DatasetAdded, hello: m.ClientHello) -> None:
        """Check that clients can read a dataset by these rules, before anything is recorded.

        Args:
            dataset: the dataset that `hello` names.
            hello: the request of a client.

        Raises:
            StokerError: if they cannot; says why.
        """
        if self.coordinated:
            check_coordinated(hello, dataset.size, dataset.options)
        if self._buffer is m.BufferPolicy.SLIDING_WINDOW:
            check_repetition(hello.epoch)
            check_cacheable(dataset.size)

    def shards(
        self, dataset: m.RegisterDataset | DatasetAdded, addresses: Sequence[str]
    ) -> tuple[int, ShardBy | None]:
        """Return the number of shards of a new iteration and what they divide; 0 without shards.

        Args:
            dataset: the dataset.
            addresses: those of the configured workers.

        Raises:
            StokerError: if the workers cannot divide the dataset; says why.
        """
        return 0, None

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────
    def needs_task(self, iteration: Iteration, dataset: DatasetAdded, worker: Worker) -> bool:
        """Return whether the iteration starts a task on `worker` if a client can read it."""
        return (
            self.accepts_tasks(iteration)
            and worker.added.worker_id not in iteration.by_worker
            and not worker.draining
            and can_run(dataset, worker.added)
        )

    def accepts_tasks(self, iteration: Iteration) -> bool:
        """Return whether the iteration starts tasks on workers that have none."""
        return not iteration.computed and not iteration.rounds_ended

    def may_never_start(self, dataset: DatasetAdded) -> bool:
        """Return whether a worker that waits until clients can read its task may never get one."""
        return dataset.size == INFINITE_CARDINALITY

    def task_seed(self, iteration: Iteration, drawn: int) -> int:
        """Return the seed of a new task; `drawn` is a new one."""
        return drawn

    def task_start(self, task: Task) -> m.TaskStart:
        """Return what the worker needs to run `task`, also the calls that ended others."""
        iteration, poison = task.iteration, task.iteration.poison
        return m.TaskStart(
            task.task_id,
            iteration.iteration_id,
            iteration.job.dataset_id,
            task.seed,
            iteration.epoch,
            buffer=self._buffer,
            key=task.key,
            traced=poison.traced(),
            suspects=poison.suspects(),
            poisoned=list(poison.poisoned),
            job=iteration.job.added.job,
            num_consumers=iteration.parameters.num_consumers or 0,
            absent=iteration.absent,
            finite_coordinated=iteration.finite_coordinated,
            salts=iteration.job.added.seeds.salts,
        )

    def reaches(self, client: Client, task: Task) -> bool:
        """Return whether `client` can read `task`, and is notified of its loss."""
        target_workers = client.iteration.parameters.target_workers
        return self.coordinated or can_read(client.process, target_workers, task.worker)

    def is_private(self, parameters: m.JobParameters, worker: WorkerAdded) -> bool:
        """Return whether only clients in its own process read from `worker`."""
        return not self.coordinated and is_private(parameters.target_workers, worker)

    def frees_local_tasks(self, parameters: m.JobParameters) -> bool:
        """Return whether tasks for one process end with its last client.

        Others stay, so that the next client of the job gets their elements.
        """
        return False

    def check_reopened(self, iteration: Iteration, hello: m.ClientHello) -> None:
        """Check that a client may open an iteration that others have opened before.

        Raises:
            FailedPreconditionError: if the tasks for its process have ended.
        """

    def died(self, task: Task, calls: list[CallRange], alone: int, how: str) -> TaskDied | None:
        """Return the record of calls that may have ended the worker of `task`.

        Returns:
            ``None`` if no other task will call the functions for the same elements.
        """
        return TaskDied(task.task_id, calls, alone, how)

    # ── splits ────────────────────────────────────────────────────────────────────────────────────
    def sources_to_list(self, dataset: DatasetAdded) -> list[int]:
        """Return the sources whose splits a worker must list before tasks start."""
        return []

    def split_sources(
        self, dataset: DatasetAdded, listed: dict[int, int], workers: int
    ) -> list[m.SplitSource]:
        """Return the sources whose splits are assigned to tasks.

        Args:
            dataset: the dataset.
            listed: the number of splits that a worker has listed, by source.
            workers: the number of workers now.
        """
        return []

    def check_listed(self, iteration: Iteration) -> None:
        """Check what a worker has listed, before tasks start.

        Raises:
            StokerError: if tasks cannot read it.
        """

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────
    def end_task(self, task: Task) -> None:
        """Update the iteration of a task that computes no more; called by `State.apply`."""

    def is_computed(self, counts: TaskCounts) -> bool:
        """Return whether no task computes, and none is added unless one is lost before its end."""
        return not counts.running and counts.exhausted > 0

    def is_finished(self, counts: TaskCounts) -> bool:
        """Return whether all elements were consumed or are lost, and no task is added."""
        return not counts.open and self.is_computed(counts)

    def is_computed_for(self, client: Client) -> bool:
        """Return what `is_computed` returns, for the tasks that `client` can read.

        A task that no client reads will be assigned to one.
        """
        iteration = client.iteration
        if any(self.reaches(client, task) for task in iteration.unread.values()):
            return False
        if iteration.parameters.target_workers != "LOCAL":
            return iteration.computed
        # The tasks of the client's process may end long before those of others.
        mine = TaskCounts()
        for task in iteration.tasks.values():
            if self.reaches(client, task):
                mine.add(task)
        return iteration.computed or self.is_computed(mine)

    def absent(self, client: Client) -> str:
        """Return whom a client waits for that has not registered, as part of a sentence, or ""."""
        return ""

    def loss(self, task: Task) -> m.TaskLost:
        """Return the message to clients about a lost task."""
        address, elements = task.worker.address, task.elements_lost
        return m.TaskLost(task.task_id, address, task.lost, elements=elements)

    def is_collected(self, job: Job, config: DispatcherConfig) -> bool:
        """Return whether a job without clients is removed after `job_gc_timeout_ms`."""
        return True


class Off(Mode):
    """Every task yields the whole dataset."""

    def frees_local_tasks(self, parameters: m.JobParameters) -> bool:
        """Return True for LOCAL reads without a cross-trainer cache."""
        return frees_local_tasks(parameters)

    def check_reopened(self, iteration: Iteration, hello: m.ClientHello) -> None:
        """Check that no task for the client's process was dropped.

        Another one would start from the beginning, and the client expect the rest.
        """
        if not self.frees_local_tasks(hello.parameters):
            return
        for task in iteration.tasks.values():
            dropped = task.lost == NO_LOCAL_CLIENT and not task.read
            if dropped and process_of(task.worker) == hello.process:
                raise deleted(task.task_id, task.worker.address, hello.job)

    def accepts_tasks(self, iteration: Iteration) -> bool:
        """Return True until all tasks are computed and clients have consumed one of them.

        A task may be computed in the first moment; workers that come while it is read join.
        """
        if not iteration.computed or iteration.rounds_ended:
            return not iteration.rounds_ended
        counts = iteration.counts
        return not iteration.stopped and counts.open > 0 and not counts.delivered

    def is_computed(self, counts: TaskCounts) -> bool:
        """Return whether no task computes, no worker waits and a whole task is left, or was read.

        After the loss of the last one, another worker yields the dataset from its beginning.
        """
        return not counts.running and not counts.workers_wait and counts.whole > 0


class Dynamic(Mode):
    """The dispatcher assigns splits to tasks, so that each element is yielded by one of them."""

    def check(self, dataset: m.RegisterDataset | DatasetAdded, hello: m.ClientHello) -> None:
        """Check that every source can be split."""
        super().check(dataset, hello)
        check_splittable(hello.parameters.processing_mode, dataset.sources)

    def may_never_start(self, dataset: DatasetAdded) -> bool:
        """Return True: when a task has ended, other tasks have begun all splits."""
        return True

    def task_start(self, task: Task) -> m.TaskStart:
        """Return what the worker needs to run `task`: also the sources it asks splits of."""
        start, sources = super().task_start(task), task.iteration.sources
        assert sources is not None
        return msgspec.structs.replace(start, split_sources=list(sources.values()))

    def died(self, task: Task, calls: list[CallRange], alone: int, how: str) -> TaskDied | None:
        """Return ``None``: splits that were begun are never read again."""
        return None

    def sources_to_list(self, dataset: DatasetAdded) -> list[int]:
        """Return the sources whose splits only a worker can know, such as files."""
        return [x.number for x in dataset.sources if isinstance(x.splits, ListedSplits)]

    def split_sources(
        self, dataset: DatasetAdded, listed: dict[int, int], workers: int
    ) -> list[m.SplitSource]:
        """Return all sources of the dataset; those with an index are cut here."""
        sources = []
        for source in dataset.sources:
            if isinstance(source.splits, IndexSplits):
                count = source.splits.count
                sources.append(m.SplitSource(source.number, split_total(count, workers), count))
            else:
                sources.append(m.SplitSource(source.number, listed[source.number]))
        return sources

    def end_task(self, task: Task) -> None:
        """Return the splits that the task had not begun to the others."""
        task.iteration.leave_trackers(task.task_id)

    def loss(self, task: Task) -> m.TaskLost:
        """Return the message to clients: elements of the splits it had begun may be lost."""
        return msgspec.structs.replace(super().loss(task), splits_begun=task.splits_lost)

    def is_collected(self, job: Job, config: DispatcherConfig) -> bool:
        """Return whether the job is collected: a named one would start over if read again.

        As in tf.data service it stays, unless `gc_dynamic_sharding_jobs` is set. A job without a
        name cannot be asked for again.
        """
        return not job.added.named or config.gc_dynamic_sharding_jobs


class Static(Mode):
    """Each of the configured workers yields its shard, from its beginning after a loss."""

    def shards(
        self, dataset: m.RegisterDataset | DatasetAdded, addresses: Sequence[str]
    ) -> tuple[int, ShardBy | None]:
        """Return a shard for each configured worker."""
        static.check_static(self._policy, dataset, addresses)
        return len(addresses), static.shard_by(self._policy, dataset)

    def needs_task(self, iteration: Iteration, dataset: DatasetAdded, worker: Worker) -> bool:
        """Return True for the worker of a shard that was not read whole."""
        missing = worker.added.place in iteration.counts.missing
        return missing and super().needs_task(iteration, dataset, worker)

    def task_seed(self, iteration: Iteration, drawn: int) -> int:
        """Return the seed of the iteration: all workers must draw the same order to divide it."""
        return iteration.seed

    def task_start(self, task: Task) -> m.TaskStart:
        """Return what the worker needs to run `task`: also its shard."""
        iteration, index = task.iteration, task.shard
        assert iteration.shard_by is not None
        assert index is not None
        shard = m.Shard(iteration.shard_by, iteration.shards, index)
        return msgspec.structs.replace(super().task_start(task), shard=shard)

    def sources_to_list(self, dataset: DatasetAdded) -> list[int]:
        """Return the sources whose files are divided."""
        return static.listed_files(self._policy, dataset)

    def check_listed(self, iteration: Iteration) -> None:
        """Check that every worker reads a file of each source."""
        for values in iteration.values.values():
            static.check_files(len(values), iteration.shards)

    def is_computed(self, counts: TaskCounts) -> bool:
        """Return whether every shard was read whole, or can be."""
        return not counts.running and not counts.missing

    def is_computed_for(self, client: Client) -> bool:
        """Return whether all shards that the client waits for were read whole, or can be."""
        unread = client.iteration.unread.values()
        if any(self.reaches(client, task) for task in unread):
            return False
        return not static.awaits_shards(client)

    def absent(self, client: Client) -> str:
        """Return the configured workers whose shards are missing and that are not there."""
        return static.absent_workers(client)

    def loss(self, task: Task) -> m.TaskLost:
        """Return the message to clients: a shard that was not read whole is read again."""
        iteration, lost = task.iteration, super().loss(task)
        if task.shard not in iteration.counts.missing:
            return lost
        shard = f"shard {task.shard} of {iteration.shards}"
        return msgspec.structs.replace(lost, read_again=shard)


_MODES: dict[ShardingPolicy, type[Mode]] = {
    ShardingPolicy.OFF: Off,
    ShardingPolicy.DYNAMIC: Dynamic,
    **dict.fromkeys(STATIC_POLICIES, Static),
}


def mode_of(parameters: m.JobParameters) -> Mode:
    """Return the rules for jobs with these parameters.

    Raises:
        UnimplementedError: if this version does not have the processing mode.
    """
    buffer = m.BufferPolicy.FIRST_COME
    if parameters.use_cross_trainer_cache:
        buffer = m.BufferPolicy.SLIDING_WINDOW
    elif parameters.num_consumers is not None:
        buffer = m.BufferPolicy.ROUND_ROBIN
    return _mode(parameters.processing_mode, buffer)


@functools.cache
def _mode(policy: ShardingPolicy, buffer: m.BufferPolicy) -> Mode:
    return _MODES[parse_processing_mode(policy)](buffer, policy)
