"""DYNAMIC: the dispatcher assigns splits to tasks."""

import msgspec

from stoker.dataset.tree.splits import IndexSplits, ListedSplits
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.entities.entities import JobEntry, TaskEntry
from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.entities.split_tracker import split_total
from stoker.service.dispatcher.modes.dynamic.state import DynamicState
from stoker.service.dispatcher.modes.mode import Mode
from stoker.service.dispatcher.modes.states import splits_of
from stoker.service.rules.checks import check_splittable


class Dynamic(Mode):
    """The dispatcher assigns splits to tasks, so that each element is yielded by one of them."""

    state_type = DynamicState
    repeats_elements = False  # splits that were begun are never read again

    def check(self, dataset: m.RegisterDataset | DatasetInfo, hello: m.ClientHello) -> None:
        """Check that every source can be split."""
        super().check(dataset, hello)
        check_splittable(hello.parameters.processing_mode, dataset.sources)

    def may_never_start(self, dataset: DatasetInfo) -> bool:
        """Return True: when a task has ended, other tasks have begun all splits."""
        return True

    def of_task(self, task: TaskEntry, sharing: m.AnySharing) -> m.AnyTask:
        """Return the sources that the worker asks splits of."""
        sources = task.iteration.sources
        assert sources is not None
        return m.SplitTask(sharing, sources=list(sources.values()))

    def sources_to_list(self, dataset: DatasetInfo) -> list[int]:
        """Return the sources whose splits only a worker can know, such as files."""
        return [x.number for x in dataset.sources if isinstance(x.splits, ListedSplits)]

    def split_sources(
        self, dataset: DatasetInfo, listed: dict[int, int], workers: int
    ) -> list[m.SplitSource]:
        """Return all sources of the dataset; those with an index are cut here."""
        sources = []
        for source in dataset.sources:
            if isinstance(source.splits, IndexSplits):
                count = source.splits.count
                # More splits for more workers, so that workers end together. (docs/decisions/037)
                sources.append(m.SplitSource(source.number, split_total(count, workers), count))
            else:
                sources.append(m.SplitSource(source.number, listed[source.number]))
        return sources

    def end_task(self, task: TaskEntry) -> None:
        """Return the splits that the task had not begun to the others."""
        splits_of(task.iteration.mode_state).leave_all(task.task_id)

    def loss(self, task: TaskEntry) -> m.TaskLost:
        """Return the message to clients: elements of the splits it had begun may be lost."""
        return msgspec.structs.replace(super().loss(task), splits_begun=task.splits_lost)

    def is_collected(self, job: JobEntry, config: DispatcherConfig) -> bool:
        """Return whether the job is collected: a named one would start over if read again.

        As in tf.data service it stays, unless `gc_dynamic_sharding_jobs` is set. A job without a
        name cannot be asked for again.
        """
        return not job.added.named or config.gc_dynamic_sharding_jobs
