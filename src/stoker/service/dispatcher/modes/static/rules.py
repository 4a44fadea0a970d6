"""FILE, DATA, FILE_OR_DATA and HINT: each of the configured workers yields its shard."""

from collections.abc import Sequence

import msgspec

from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import (
    ClientEntry,
    Iteration,
    TaskEntry,
    TaskTally,
    WorkerEntry,
)
from stoker.service.dispatcher.entities.registered import DatasetInfo, WorkerInfo
from stoker.service.dispatcher.modes.mode import Mode
from stoker.service.dispatcher.modes.states import AnyModeState
from stoker.service.dispatcher.modes.static import sharding
from stoker.service.dispatcher.modes.static.shard_files import shard_page
from stoker.service.dispatcher.modes.static.sharding import state_of
from stoker.service.dispatcher.modes.static.state import ShardState


class Static(Mode):
    """Each of the configured workers yields its shard, from its beginning after a loss."""

    state_type = ShardState
    lists_in_order = True

    def new_state(
        self, dataset: m.RegisterDataset | DatasetInfo, addresses: Sequence[str]
    ) -> AnyModeState:
        """Return a shard for each configured worker."""
        sharding.check_static(self._policy, dataset, addresses)
        agreement = self.sharing.new_agreement(dataset.options)
        by = sharding.shard_by(self._policy, dataset)
        return ShardState(agreement=agreement, shards=len(addresses), by=by)

    def fits(self, state: AnyModeState) -> bool:
        """Return whether the state of an iteration has shards."""
        return super().fits(state) and isinstance(state, ShardState) and state.shards > 0

    def needs_task(self, iteration: Iteration, dataset: DatasetInfo, worker: WorkerEntry) -> bool:
        """Return True for the worker of a shard that was not read whole."""
        missing = worker.added.place in state_of(iteration).missing
        return missing and super().needs_task(iteration, dataset, worker)

    def task_seed(self, iteration: Iteration, drawn: int) -> int:
        """Return the seed of the iteration: all workers must draw the same order to divide it."""
        return iteration.seed

    def of_task(self, task: TaskEntry, sharing: m.AnySharing) -> m.AnyTask:
        """Return the shard that the task yields."""
        state, index = state_of(task.iteration), task.worker.place
        assert index is not None
        return m.ShardTask(sharing, by=state.by, count=state.shards, index=index)

    def sources_to_list(self, dataset: DatasetInfo) -> list[int]:
        """Return the sources whose files are divided."""
        return sharding.listed_files(self._policy, dataset)

    def check_listed(self, iteration: Iteration) -> None:
        """Check that every worker reads a file of each source."""
        for values in iteration.values.values():
            sharding.check_files(len(values), state_of(iteration).shards)

    def check_resumed(self, iteration: Iteration) -> None:
        """Check that the list of workers has a place for every shard."""
        sharding.check_places(iteration)

    def shard_page(self, task: TaskEntry, request: m.ShardRequest) -> m.ShardPage:
        """Return the next files of the shard of `task`."""
        return shard_page(task, request)

    def no_local_worker(self) -> InvalidArgumentError:
        """Return the error of a client that reads shards of its process, which has no worker."""
        return InvalidArgumentError(
            f"Static sharding policy <{self._policy.name}> requires local tf.data workers, but no "
            'local worker is found. target_workers="LOCAL" reads only the shards of workers of '
            "the trainer's process; without it a trainer reads those of all workers"
        )

    def awaits(self, iteration: Iteration, worker: WorkerInfo) -> bool:
        """Return whether clients wait for the shard of a worker that has come or was lost."""
        return worker.place in state_of(iteration).missing

    def is_computed(self, iteration: Iteration, counts: TaskTally) -> bool:
        """Return whether every shard was read whole, or can be."""
        return not counts.running and not state_of(iteration).missing

    def is_computed_for(self, client: ClientEntry) -> bool:
        """Return whether all shards that the client waits for were read whole, or can be."""
        unread = client.iteration.unread.values()
        if any(self.reaches(client, task) for task in unread):
            return False
        return not sharding.awaits_shards(client)

    def absent(self, client: ClientEntry) -> str:
        """Return the configured workers whose shards are missing and that are not there."""
        return sharding.absent_workers(client)

    def loss(self, task: TaskEntry) -> m.TaskLost:
        """Return the message to clients: a shard that was not read whole is read again."""
        state, lost, index = state_of(task.iteration), super().loss(task), task.worker.place
        if index not in state.missing:
            return lost
        shard = f"shard {index} of {state.shards}"
        return msgspec.structs.replace(lost, read_again=shard)
