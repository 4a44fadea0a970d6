"""Static sharding: what each policy divides, the checks before it, and whom clients wait for."""

from collections.abc import Sequence
from heapq import nsmallest

from stoker.dataset.nodes.shard import too_few_files
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, ShardBy, Unsplittable
from stoker.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import ClientEntry, Iteration
from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.modes.static.state import ShardState
from stoker.service.rules.processing_modes import ShardingPolicy

NAMED_ABSENT = 3
"""Most absent workers that a message to a client names."""

READS_SERVICE = "distribute"
"""The kind of the sources that read from a service, of which each reader gets other elements."""

_BY = {
    ShardingPolicy.FILE: ShardBy.FILES,
    ShardingPolicy.DATA: ShardBy.ELEMENTS,
    ShardingPolicy.HINT: ShardBy.HINT,
}


def state_of(iteration: Iteration) -> ShardState:
    """Return the shards of an iteration."""
    state = iteration.mode_state
    assert isinstance(state, ShardState)
    return state


def shard_by(policy: ShardingPolicy, dataset: m.RegisterDataset | DatasetInfo) -> ShardBy:
    """Return what the workers divide; FILE_OR_DATA depends on the sources of the dataset."""
    if policy is not ShardingPolicy.FILE_OR_DATA:
        return _BY[policy]
    sources = dataset.file_sources
    has_files = sources and not any(isinstance(x.splits, Unsplittable) for x in sources)
    return ShardBy.FILES if has_files else ShardBy.ELEMENTS


def check_static(
    policy: ShardingPolicy, dataset: m.RegisterDataset | DatasetInfo, addresses: Sequence[str]
) -> None:
    """Check that the workers at the configured addresses can each read a shard of a dataset.

    Raises:
        NotFoundError: if no addresses are configured, or files are to be divided and a source has
            none; names it.
        InvalidArgumentError: if an array has fewer names of files than there are workers.
        UnimplementedError: if elements are to be divided and a source reads from a service.
    """
    if not addresses:
        raise NotFoundError(
            "Failed to shard dataset in tf.data service: Worker <any> is not in the workers list. "
            f"Got workers list {{}}. Under ShardingPolicy.{policy.name} each worker of a list "
            "reads its own shard: start the dispatcher with that list (`worker_addresses` of "
            "DispatcherConfig, `stoker dispatcher --worker-addresses`)"
        )
    if shard_by(policy, dataset) is not ShardBy.FILES:
        _check_repeatable(policy, dataset)
        return
    if not dataset.file_sources:
        raise NotFoundError(
            "Found an unshardable source dataset: its sources are not known, because it was "
            "registered by an earlier version of stoker; register it again"
        )
    for source in dataset.file_sources:
        if isinstance(source.splits, Unsplittable):
            raise NotFoundError(
                f"Found an unshardable source dataset: `{source.kind}` ({source.site}): "
                f"{source.splits.why}. ShardingPolicy.FILE divides the files of `list_files`, or "
                "names in an array; use ShardingPolicy.FILE_OR_DATA or DATA to divide the elements"
            )
        if isinstance(source.splits, IndexSplits):
            check_files(source.splits.count, len(addresses))


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


def check_files(files: int, shards: int) -> None:
    """Check that every worker reads a file, or that there is none.

    Raises:
        InvalidArgumentError: if there are fewer files than workers.
    """
    if 0 < files < shards:
        raise InvalidArgumentError(too_few_files(files, shards))


def check_places(iteration: Iteration) -> None:
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


def listed_files(policy: ShardingPolicy, dataset: DatasetInfo) -> list[int]:
    """Return the sources whose files a worker must list before they are divided."""
    if shard_by(policy, dataset) is not ShardBy.FILES:
        return []
    return [x.number for x in dataset.file_sources if isinstance(x.splits, ListedSplits)]


def awaits_shards(client: ClientEntry) -> bool:
    """Return whether a shard that the client may read was not read whole.

    A shard without a worker is one: its next worker may be one that the client reads. A client that
    reads only its own process does not wait for others.
    """
    iteration = client.iteration
    target, workers = iteration.parameters.target_workers, iteration.places.workers
    return bool(_absent_shards(client)) or any(
        shard in workers and workers[shard].serves(client.process, target)
        for shard in state_of(iteration).missing
    )


def absent_workers(client: ClientEntry) -> str:
    """Return whom the client waits for that has not registered, as part of a sentence, or ""."""
    absent, iteration = _absent_shards(client), client.iteration
    if not absent:
        return ""
    addresses, shards = iteration.places.addresses, state_of(iteration).shards
    named = [_absent(x, shards, addresses) for x in nsmallest(NAMED_ABSENT, absent)]
    more = f" and {len(absent) - NAMED_ABSENT} more" if len(absent) > NAMED_ABSENT else ""
    have = "has" if len(absent) == 1 else "have"
    return f"{', '.join(named)}{more}, which {have} not registered"


def _absent_shards(client: ClientEntry) -> set[int]:
    """Return the shards that the client waits for and that have no worker."""
    iteration = client.iteration
    if iteration.parameters.target_workers == "LOCAL":
        return set()
    return state_of(iteration).missing - iteration.places.workers.keys()


def _absent(shard: int, shards: int, addresses: Sequence[str]) -> str:
    at = f" at {addresses[shard]}" if shard < len(addresses) else ""
    return f"the worker of shard {shard} of {shards}{at}"
