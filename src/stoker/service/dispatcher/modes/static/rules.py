"""FILE, DATA, FILE_OR_DATA and HINT: each of the configured workers yields its shard."""

from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

import msgspec

from stoker.dataset.nodes.shard import too_few_files
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, ShardBy, Unsplittable
from stoker.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from stoker.service import messages as m
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.entities.listed_values import MAX_LISTED_BATCH, MAX_LISTED_BYTES
from stoker.service.dispatcher.entities.registered import DatasetInfo, WorkerInfo
from stoker.service.dispatcher.modes.mode import Mode
from stoker.service.dispatcher.modes.states import AnyModeState
from stoker.service.dispatcher.modes.static.state import ShardState
from stoker.service.rules.processing_modes import ShardingPolicy

NAMED_ABSENT = 3
"""Most absent workers that a message to a client names."""

READS_SERVICE = "distribute"
"""The kind of the sources that read from a service, of which each reader gets other elements."""

SPAN = 20_000
"""Most files of the whole list that an answer covers. Finding those of one shard decodes all of
them, 0.1 us each; workers that begin together ask for the same part of the list."""

_BY = {
    ShardingPolicy.FILE: ShardBy.FILES,
    ShardingPolicy.DATA: ShardBy.ELEMENTS,
    ShardingPolicy.HINT: ShardBy.HINT,
}


def state_of(iteration: e.Iteration) -> ShardState:
    """Return the shards of an iteration."""
    state = iteration.mode_state
    assert isinstance(state, ShardState)
    return state


class Static(Mode):
    """Each of the configured workers yields its shard, from its beginning after a loss."""

    state_type = ShardState
    lists_in_order = True

    def new_state(
        self,
        dataset: m.RegisterDataset | DatasetInfo,
        addresses: Sequence[str],
        hello: m.ClientHello | None = None,
    ) -> AnyModeState:
        """Return a shard for each configured worker.

        Raises:
            NotFoundError: if no addresses are configured, or files are to be divided and a source
                has none; names it.
            InvalidArgumentError: if an array has fewer names of files than there are workers.
            UnimplementedError: if elements are to be divided and a source reads from a service.
        """
        if not addresses:
            raise NotFoundError(
                "Failed to shard dataset in tf.data service: Worker <any> is not in the workers "
                f"list. Got workers list {{}}. Under ShardingPolicy.{self._policy.name} each "
                "worker of a list reads its own shard: start the dispatcher with that list "
                "(`worker_addresses` of DispatcherConfig, `stoker dispatcher --worker-addresses`)"
            )
        by = self._shard_by(dataset)
        if by is ShardBy.FILES:
            _check_file_sources(dataset, len(addresses))
        else:
            _check_repeatable(self._policy, dataset)
        agreement = self.sharing.new_agreement(dataset.options)
        return ShardState(agreement=agreement, shards=len(addresses), by=by)

    def _shard_by(self, dataset: m.RegisterDataset | DatasetInfo) -> ShardBy:
        """Return what the workers divide; FILE_OR_DATA depends on the sources of the dataset."""
        if self._policy is not ShardingPolicy.FILE_OR_DATA:
            return _BY[self._policy]
        sources = dataset.file_sources
        has_files = sources and not any(isinstance(x.splits, Unsplittable) for x in sources)
        return ShardBy.FILES if has_files else ShardBy.ELEMENTS

    def fits(self, state: AnyModeState) -> bool:
        """Return whether the state of an iteration has shards."""
        return super().fits(state) and isinstance(state, ShardState) and state.shards > 0

    def needs_task(
        self, iteration: e.Iteration, dataset: DatasetInfo, worker: e.WorkerEntry
    ) -> bool:
        """Return True for the worker of a shard that was not read whole."""
        missing = worker.added.place in state_of(iteration).missing
        return missing and super().needs_task(iteration, dataset, worker)

    def common_seed(self, iteration: e.Iteration) -> int | None:
        """Return the seed of the iteration: all workers must draw the same order to divide it."""
        return iteration.seed

    def of_task(self, task: e.TaskEntry, sharing: m.AnySharing) -> m.AnyTask:
        """Return the shard that the task yields."""
        state, index = state_of(task.iteration), task.worker.place
        assert index is not None
        return m.ShardTask(sharing, by=state.by, count=state.shards, index=index)

    def sources_to_list(self, dataset: DatasetInfo) -> list[int]:
        """Return the sources whose files a worker must list before they are divided."""
        if self._shard_by(dataset) is not ShardBy.FILES:
            return []
        return [x.number for x in dataset.file_sources if isinstance(x.splits, ListedSplits)]

    def check_listed(self, iteration: e.Iteration) -> None:
        """Check that every worker reads a file of each source."""
        for values in iteration.values.values():
            _check_files(len(values), state_of(iteration).shards)

    def check_resumed(self, iteration: e.Iteration) -> None:
        """Check that a restarted dispatcher has a place for every shard of an iteration.

        Raises:
            FailedPreconditionError: if its list of workers has become shorter.
        """
        shards, places = state_of(iteration).shards, iteration.places
        if shards > len(places.addresses) and not places.grows:
            raise FailedPreconditionError(
                f"this epoch is read in {shards} shards, but the dispatcher was restarted with "
                f"{len(places.addresses)} `worker_addresses`. Restart it with those of before, or "
                "read with a new iterator and another job_name"
            )

    def shard_page(self, task: e.TaskEntry, request: m.ShardRequest) -> m.ShardPage:
        """Return the next files of the shard of `task`.

        Raises:
            InvalidArgumentError: if the task has no shard, or `start` is negative.
        """
        shards, shard = state_of(task.iteration).shards, task.worker.place
        if shard is None or request.start < 0:
            raise InvalidArgumentError(
                f"task {task.task_id} asks for files of a shard from {request.start} on, which is "
                "not possible"
            )
        # Nothing is kept between answers: a worker asks by position, in any order, and again on a
        # new session.
        listed = task.iteration.values.get(request.source, ())
        first = shard + request.start * shards
        most = max(1, min(MAX_LISTED_BATCH, SPAN // shards))
        values: list[Any] = []
        size = 0
        for position in range(first, min(len(listed), first + most * shards), shards):
            value = listed[position]
            size += len(msgspec.msgpack.encode(value))
            if values and size > MAX_LISTED_BYTES:
                break
            values.append(value)
        end = first + len(values) * shards >= len(listed)
        return m.ShardPage(task.task_id, request.source, request.start, values, end)

    def no_local_worker(self) -> InvalidArgumentError:
        """Return the error of a client that reads shards of its process, which has no worker."""
        return InvalidArgumentError(
            f"Static sharding policy <{self._policy.name}> requires local tf.data workers, but no "
            'local worker is found. target_workers="LOCAL" reads only the shards of workers of '
            "the trainer's process; without it a trainer reads those of all workers"
        )

    def awaits(self, iteration: e.Iteration, worker: WorkerInfo) -> bool:
        """Return whether clients wait for the shard of a worker that has come or was lost."""
        return worker.place in state_of(iteration).missing

    def is_computed(self, iteration: e.Iteration, counts: e.TaskTally) -> bool:
        """Return whether every shard was read whole, or can be."""
        return not counts.running and not state_of(iteration).missing

    def is_computed_for(self, client: e.ClientEntry) -> bool:
        """Return whether all shards that the client waits for were read whole, or can be."""
        iteration = client.iteration
        if any(self.reaches(client, task) for task in iteration.unread.values()):
            return False
        # The next worker of a shard without a worker may be one that the client reads. A client
        # that reads only its own process does not wait for others.
        target, workers = iteration.parameters.target_workers, iteration.places.workers
        return not _absent_shards(client) and not any(
            shard in workers and workers[shard].serves(client.process, target)
            for shard in state_of(iteration).missing
        )

    def absent(self, client: e.ClientEntry) -> str:
        """Return the configured workers whose shards are missing and that are not there."""
        absent, iteration = _absent_shards(client), client.iteration
        if not absent:
            return ""
        addresses, shards = iteration.places.addresses, state_of(iteration).shards
        named = []
        for shard in nsmallest(NAMED_ABSENT, absent):
            # A restarted dispatcher may have fewer addresses than the iteration has shards.
            at = f" at {addresses[shard]}" if shard < len(addresses) else ""
            named.append(f"the worker of shard {shard} of {shards}{at}")
        more = f" and {len(absent) - NAMED_ABSENT} more" if len(absent) > NAMED_ABSENT else ""
        have = "has" if len(absent) == 1 else "have"
        return f"{', '.join(named)}{more}, which {have} not registered"

    def loss(self, task: e.TaskEntry) -> m.TaskLost:
        """Return the message to clients: a shard that was not read whole is read again."""
        state, lost, index = state_of(task.iteration), super().loss(task), task.worker.place
        if index not in state.missing:
            return lost
        shard = f"shard {index} of {state.shards}"
        return msgspec.structs.replace(lost, read_again=shard)


def _check_file_sources(dataset: m.RegisterDataset | DatasetInfo, shards: int) -> None:
    """Check that the files of every source can be divided."""
    for source in dataset.file_sources:
        if isinstance(source.splits, Unsplittable):
            raise NotFoundError(
                f"Found an unshardable source dataset: `{source.kind}` ({source.site}): "
                f"{source.splits.why}. ShardingPolicy.FILE divides the files of `list_files`, or "
                "names in an array; use ShardingPolicy.FILE_OR_DATA or DATA to divide the elements"
            )
        if isinstance(source.splits, IndexSplits):
            _check_files(source.splits.count, shards)


def _check_repeatable(policy: ShardingPolicy, dataset: m.RegisterDataset | DatasetInfo) -> None:
    """Check that every worker reads the same elements, of which it keeps its part."""
    for source in dataset.file_sources:
        if source.kind == READS_SERVICE:
            raise UnimplementedError(
                f"`{source.kind}` ({source.site}) cannot be read under "
                f"ShardingPolicy.{policy.name}: the workers share the elements of the service that "
                "it reads, so that each would keep a part of its part. Use "
                'processing_mode="parallel_epochs", in which they yield each element once'
            )


def _check_files(files: int, shards: int) -> None:
    """Check that every worker reads a file, or that there is none."""
    if 0 < files < shards:
        raise InvalidArgumentError(too_few_files(files, shards))


def _absent_shards(client: e.ClientEntry) -> set[int]:
    """Return the shards that the client waits for and that have no worker."""
    iteration = client.iteration
    if iteration.parameters.target_workers == "LOCAL":
        return set()
    return state_of(iteration).missing - iteration.places.workers.keys()
