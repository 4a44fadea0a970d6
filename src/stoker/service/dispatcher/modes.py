"""The rules of each processing mode; no other file of the dispatcher knows modes.

A mode decides which tasks an iteration has, what `TaskStart` carries, which tasks a client reads,
when an iteration has ended, what the loss of a task means and when a job is collected. Modes have
no state: what an iteration has done is in the dispatcher's state, so that replaying records
rebuilds it.
"""

import functools

import msgspec

from stoker.dataset.streams.call_ranges import CallRange
from stoker.dataset.tree.node import INFINITE_CARDINALITY
from stoker.dataset.tree.splits import IndexSplits, ListedSplits
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig, ShardingPolicy, parse_processing_mode
from stoker.service.coordination import check_coordinated
from stoker.service.dispatcher.entities import Client, Iteration, Job, Task, TaskCounts, Worker
from stoker.service.dispatcher.placement import can_read, can_run, is_private
from stoker.service.dispatcher.records import DatasetAdded, TaskDied, WorkerAdded
from stoker.service.dispatcher.split_tracker import split_total
from stoker.service.splittable import check_splittable


class Mode:
    """The rules that modes share unless they override them.

    Args:
        buffer: decides which client of a task gets which element.
    """

    def __init__(self, buffer: m.BufferPolicy = m.BufferPolicy.FIRST_COME) -> None:
        self._buffer = buffer

    @property
    def coordinated(self) -> bool:
        """True if clients are consumers that read all tasks in turns, as their rounds go."""
        return self._buffer is m.BufferPolicy.ROUND_ROBIN

    def check(
        self,
        dataset: m.RegisterDataset | DatasetAdded,
        hello: m.ClientHello,
        config: DispatcherConfig,
    ) -> None:
        """Check that clients can read a dataset by these rules, before anything is recorded.

        Args:
            dataset: the dataset that `hello` names.
            hello: the request of a client.
            config: the configuration of the dispatcher.

        Raises:
            StokerError: if they cannot; says why.
        """
        if self.coordinated:
            check_coordinated(hello, dataset.size, dataset.options)

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
        """Return what the worker needs to run `task`."""
        iteration = task.iteration
        return m.TaskStart(
            task.task_id,
            iteration.iteration_id,
            iteration.job.dataset_id,
            task.seed,
            iteration.epoch,
            buffer=self._buffer,
            key=task.key,
            num_consumers=iteration.parameters.num_consumers or 0,
            absent=iteration.absent,
            finite_coordinated=iteration.finite_coordinated,
        )

    def reaches(self, client: Client, task: Task) -> bool:
        """Return whether `client` can read `task`, and hears of its loss."""
        target_workers = client.iteration.parameters.target_workers
        return self.coordinated or can_read(client.process, target_workers, task.worker)

    def is_private(self, parameters: m.JobParameters, worker: WorkerAdded) -> bool:
        """Return whether only clients in its own process read from `worker`."""
        return not self.coordinated and is_private(parameters.target_workers, worker)

    def died(self, task: Task, calls: list[CallRange], alone: int, how: str) -> TaskDied | None:
        """Return the record of calls that may have ended the worker of `task`.

        Returns:
            ``None`` if other tasks will not repeat the calls.
        """
        return None

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

    def loss(self, task: Task) -> m.TaskLost:
        """Return the message to clients about a lost task."""
        address, elements = task.worker.address, task.elements_lost
        return m.TaskLost(task.task_id, address, task.lost, elements=elements)

    def is_collected(self, job: Job, config: DispatcherConfig) -> bool:
        """Return whether a job without clients is removed after `job_gc_timeout_ms`."""
        return True


class Off(Mode):
    """Every task yields the whole dataset."""

    def task_start(self, task: Task) -> m.TaskStart:
        """Return what the worker needs to run `task`: also the calls that ended others."""
        poison = task.iteration.poison
        return msgspec.structs.replace(
            super().task_start(task),
            traced=poison.traced(),
            suspects=poison.suspects(),
            poisoned=list(poison.poisoned),
        )

    def died(self, task: Task, calls: list[CallRange], alone: int, how: str) -> TaskDied | None:
        """Return the record: another task calls the functions for the same elements."""
        return TaskDied(task.task_id, calls, alone, how)

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

    def check(
        self,
        dataset: m.RegisterDataset | DatasetAdded,
        hello: m.ClientHello,
        config: DispatcherConfig,
    ) -> None:
        """Check that every source can be split."""
        super().check(dataset, hello, config)
        check_splittable(hello.parameters.processing_mode, dataset.sources)

    def may_never_start(self, dataset: DatasetAdded) -> bool:
        """Return True: when a task has ended, other tasks have begun all splits."""
        return True

    def task_start(self, task: Task) -> m.TaskStart:
        """Return what the worker needs to run `task`: also the sources it asks splits of."""
        start, sources = super().task_start(task), task.iteration.sources
        assert sources is not None
        return msgspec.structs.replace(start, split_sources=list(sources.values()))

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


_MODES: dict[ShardingPolicy, type[Mode]] = {
    ShardingPolicy.OFF: Off,
    ShardingPolicy.DYNAMIC: Dynamic,
}


def mode_of(parameters: m.JobParameters) -> Mode:
    """Return the rules for jobs with these parameters.

    Raises:
        UnimplementedError: if this version does not have the processing mode.
    """
    coordinated = parameters.num_consumers is not None
    buffer = m.BufferPolicy.ROUND_ROBIN if coordinated else m.BufferPolicy.FIRST_COME
    return _mode(parameters.processing_mode, buffer)


@functools.cache
def _mode(policy: ShardingPolicy, buffer: m.BufferPolicy) -> Mode:
    return _MODES[parse_processing_mode(policy)](buffer)
