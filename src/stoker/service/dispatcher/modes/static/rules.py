"""FILE, DATA, FILE_OR_DATA and HINT: each of the configured workers yields its shard."""

from collections.abc import Sequence

import msgspec

from stoker.dataset.tree.splits import ShardBy
from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import Client, Iteration, Task, TaskCounts, Worker
from stoker.service.dispatcher.entities.records import DatasetAdded, WorkerAdded
from stoker.service.dispatcher.modes.mode import Mode
from stoker.service.dispatcher.modes.static import sharding
from stoker.service.dispatcher.modes.static.shard_files import shard_page


class Static(Mode):
    """Each of the configured workers yields its shard, from its beginning after a loss."""

    def shards(
        self, dataset: m.RegisterDataset | DatasetAdded, addresses: Sequence[str]
    ) -> tuple[int, ShardBy | None]:
        """Return a shard for each configured worker."""
        sharding.check_static(self._policy, dataset, addresses)
        return len(addresses), sharding.shard_by(self._policy, dataset)

    def needs_task(self, iteration: Iteration, dataset: DatasetAdded, worker: Worker) -> bool:
        """Return True for the worker of a shard that was not read whole."""
        missing = worker.added.place in iteration.counts.missing
        return missing and super().needs_task(iteration, dataset, worker)

    def task_seed(self, iteration: Iteration, drawn: int) -> int:
        """Return the seed of the iteration: all workers must draw the same order to divide it."""
        return iteration.seed

    def of_task(self, task: Task, sharing: m.AnySharing) -> m.AnyTask:
        """Return the shard that the task yields."""
        iteration, index = task.iteration, task.shard
        assert iteration.shard_by is not None
        assert index is not None
        return m.ShardTask(sharing, by=iteration.shard_by, count=iteration.shards, index=index)

    def sources_to_list(self, dataset: DatasetAdded) -> list[int]:
        """Return the sources whose files are divided."""
        return sharding.listed_files(self._policy, dataset)

    def check_listed(self, iteration: Iteration) -> None:
        """Check that every worker reads a file of each source."""
        for values in iteration.values.values():
            sharding.check_files(len(values), iteration.shards)

    def check_resumed(self, iteration: Iteration) -> None:
        """Check that the list of workers has a place for every shard."""
        sharding.check_places(iteration)

    def shard_page(self, task: Task, request: m.ShardRequest) -> m.ShardPage:
        """Return the next files of the shard of `task`."""
        return shard_page(task, request)

    def no_local_worker(self) -> InvalidArgumentError:
        """Return the error of a client that reads shards of its process, which has no worker."""
        return InvalidArgumentError(
            f"Static sharding policy <{self._policy.name}> requires local tf.data workers, but no "
            'local worker is found. target_workers="LOCAL" reads only the shards of workers of '
            "the trainer's process; without it a trainer reads those of all workers"
        )

    def awaits(self, iteration: Iteration, worker: WorkerAdded) -> bool:
        """Return whether clients wait for the shard of a worker that has come or was lost."""
        return worker.place in iteration.counts.missing

    def is_computed(self, counts: TaskCounts) -> bool:
        """Return whether every shard was read whole, or can be."""
        return not counts.running and not counts.missing

    def is_computed_for(self, client: Client) -> bool:
        """Return whether all shards that the client waits for were read whole, or can be."""
        unread = client.iteration.unread.values()
        if any(self.reaches(client, task) for task in unread):
            return False
        return not sharding.awaits_shards(client)

    def absent(self, client: Client) -> str:
        """Return the configured workers whose shards are missing and that are not there."""
        return sharding.absent_workers(client)

    def loss(self, task: Task) -> m.TaskLost:
        """Return the message to clients: a shard that was not read whole is read again."""
        iteration, lost = task.iteration, super().loss(task)
        if task.shard not in iteration.counts.missing:
            return lost
        shard = f"shard {task.shard} of {iteration.shards}"
        return msgspec.structs.replace(lost, read_again=shard)
