"""Jobs of datasets that were distributed before their reading processes were known."""

import dataclasses
import uuid
from collections.abc import Callable, Mapping

import msgspec

from stoker.dataset.dataset import Dataset
from stoker.dataset.options import Options
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.state import bases_of
from stoker.dataset.tree.local_form import local_form
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Node, number
from stoker.errors import InvalidArgumentError
from stoker.service.api.registration import with_options
from stoker.service.api.source import Distributed, changed


def is_distributed(dataset: Dataset) -> bool:
    """Return whether a dataset reads from a service."""
    return bool(_sources(dataset))


def reads_by_position(dataset: Dataset) -> bool:
    """Return whether a dataset reads a deterministic epoch, which has the states of a local one."""
    return any(node.positions is not None for node in _sources(dataset))


# Readers of a deterministic epoch do not know each other: nothing of its job is common.
def jobs_of(dataset: Dataset) -> list[str]:
    """Return the jobs whose elements their clients divide, and that a dataset reads."""
    return [node.hello.value.job for node in _dividing(dataset)]


def named_jobs_of(dataset: Dataset) -> list[str]:
    """Return the jobs among `jobs_of` that have a `job_name`."""
    return [node.hello.value.job for node in _dividing(dataset) if node.hello.value.named]


def dispatchers_of(dataset: Dataset) -> list[str]:
    """Return the address of the dispatcher of each of `jobs_of`."""
    return [node.read_options.value.dispatcher_address for node in _dividing(dataset)]


def reads_in_step(dataset: Dataset) -> bool:
    """Return whether a dataset is a consumer of a coordinated read."""
    return any(node.read_options.value.num_consumers is not None for node in _dividing(dataset))


def reads_cross_trainer_cache(dataset: Dataset) -> bool:
    """Return whether a dataset reads a job through a cross-trainer cache."""
    return any(
        node.read_options.value.cross_trainer_cache is not None for node in _sources(dataset)
    )


def with_own_jobs(
    dataset: Dataset, seed: int | None = None, *, seed_globals: bool = False
) -> Dataset:
    """Return the dataset with a new job in place of each job without a `job_name`.

    The epochs of the new jobs are counted apart from the epochs of further readers of `dataset`.

    Args:
        dataset: reads from a service.
        seed: of `with_seed_of_jobs`; ``None``: that of the datasets.
        seed_globals: as of `with_seed_of_jobs`.
    """
    if seed is not None:
        dataset = with_seed_of_jobs(dataset, seed, seed_globals=seed_globals)

    def own(node: Distributed) -> Node:
        if node.hello.value.named:
            return node
        return _with_hello(node, job=f"anonymous:{uuid.uuid4().hex}")

    return _replaced(dataset, own)


def with_seed_of_jobs(dataset: Dataset, seed: int, *, seed_globals: bool = False) -> Dataset:
    """Return the dataset with the seed of what the workers run.

    Args:
        dataset: reads from a service.
        seed: replaces the seeds that the user did not give; that of a deterministic epoch is the
            seed of the dataset.
        seed_globals: `Options.seed_globals` of datasets without that option.

    Raises:
        InvalidArgumentError: if a job has a registered dataset, whose options are fixed.
    """

    def seeded(node: Distributed) -> Node:
        registration, by_position = node.hello.value.registration, node.positions is not None
        if registration is None and by_position:
            return node
        if registration is None:
            raise InvalidArgumentError(
                "`seed` cannot reach a dataset that is registered already: give it with "
                "dataset.with_options(stoker.Options(seed=...)) before register_dataset"
            )
        defaults = Options(seed_globals=seed_globals or None)
        own = Options() if by_position else Options(seed=seed)
        options = defaults.merge(registration.options).merge(own)
        return _with_hello(node, registration=with_options(registration, options))

    return _replaced(dataset, seeded)


def as_consumer(
    dataset: Dataset,
    rank: int,
    ranks: int,
    jobs: Mapping[str, str],
    *,
    process: int = 0,
    processes: int = 1,
) -> Dataset:
    """Return the dataset read by a process of a rank; all ranks end at the same step.

    Args:
        dataset: reads from a service. What was distributed with `num_consumers` has the rank that
            was given there.
        rank: in [0, `ranks`).
        ranks: number of ranks; the clients of a job that are of a single rank share its elements.
        jobs: the common job of all ranks for each of `jobs_of`. Readers of a deterministic epoch
            need none: each process has the draws that the caller gives all of them.
        process: in [0, `processes`).
        processes: number of processes of each rank, which are read in turn.
    """

    def consumer(node: Distributed) -> Node:
        if node.positions is not None:
            return _part_of_epoch(node, node.positions, rank, ranks, process, processes)
        if ranks == 1 or node.read_options.value.num_consumers is not None:
            return node
        return coordinated(node, jobs[node.hello.value.job])

    def coordinated(node: Distributed, job: str) -> Distributed:
        options = dataclasses.replace(
            node.read_options.value,
            job_name=job,
            consumer_index=rank * processes + process,
            num_consumers=ranks * processes,
        )
        registration = node.hello.value.registration
        # `finite_coordinated` lets a finite dataset end at one step for all consumers.
        if registration is not None:  # else the id was registered with its options
            finite = registration.options.merge(Options(finite_coordinated=True))
            registration = with_options(registration, finite)
        node = _with_hello(
            node,
            job=job,
            named=True,  # else the job would end whenever no consumer is connected
            parameters=options.job_parameters,
            consumer_index=options.consumer_index,
            registration=registration,
        )
        return msgspec.structs.replace(
            node,
            read_options=Pickled.of(options),
            size=UNKNOWN_CARDINALITY if node.size != INFINITE_CARDINALITY else node.size,
            length=UNKNOWN_CARDINALITY,
        )

    return _replaced(dataset, consumer)


def _part_of_epoch(
    node: Distributed, positions: int, rank: int, ranks: int, process: int, processes: int
) -> Distributed:
    """Return a deterministic epoch read by a process of a rank."""
    options, together = node.read_options.value, ranks
    if options.num_consumers is not None:
        rank, ranks, together = options.consumer_index, options.num_consumers, options.together
    # A rank that reads its processes in turn gets what it would get without them.
    index, count = process * ranks + rank, processes * ranks
    if count == 1:
        return node
    options = dataclasses.replace(
        options, consumer_index=index, num_consumers=count, together=together
    )
    node = _with_hello(node, consumer_index=index)
    size = options.size_by_position(positions)
    return changed(node, read_options=Pickled.of(options), size=size)


def begun_at(dataset: Dataset, base: int) -> Dataset:
    """Return the dataset with the length of an epoch whose consumers begin at a position.

    Args:
        dataset: perhaps reads a deterministic epoch.
        base: of the state from which they go on, in elements of the dataset.
    """
    if not base:
        return dataset
    local = local_form(dataset.node)
    bases = bases_of(dataset.node, local, base)

    def begun(node: Distributed) -> Node:
        if node.positions is None:
            return node
        options, first = node.read_options.value, bases[local.numbers[node]]
        return changed(node, size=options.size_by_position(node.positions, first))

    return _replaced(dataset, begun)


def _dividing(dataset: Dataset) -> list[Distributed]:
    """Return the sources whose elements are divided among the clients of their job."""
    return [node for node in _sources(dataset) if node.positions is None]


def _sources(dataset: Dataset) -> list[Distributed]:
    return [node for node in number(dataset.node) if isinstance(node, Distributed)]


def _with_hello(node: Distributed, **changes: object) -> Distributed:
    hello = msgspec.structs.replace(node.hello.value, **changes)
    return changed(node, hello=Pickled.of(hello))


def _replaced(dataset: Dataset, replace: Callable[[Distributed], Node]) -> Dataset:
    # A node with two parents must stay one node: its readers share a job.
    done: dict[Node, Node] = {}
    for node in number(dataset.node):
        child = node.with_inputs([done[child] for child in node.inputs])
        done[node] = replace(child) if isinstance(child, Distributed) else child
    return dataset._with_node(done[dataset.node])
