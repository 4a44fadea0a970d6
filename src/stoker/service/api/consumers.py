"""Jobs of datasets that were distributed before their reading processes were known."""

import dataclasses
import uuid
from collections.abc import Callable, Mapping

import msgspec

from stoker.dataset.dataset import Dataset
from stoker.dataset.options import Options
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Node, number
from stoker.errors import InvalidArgumentError
from stoker.service.api.deterministic import cardinality_of
from stoker.service.api.registration import with_options
from stoker.service.api.source import Distributed, changed


def is_distributed(dataset: Dataset) -> bool:
    """Return whether a dataset reads from a service."""
    return bool(_sources(dataset))


def jobs_of(dataset: Dataset) -> list[str]:
    """Return the jobs that a dataset reads."""
    return [node.hello.value.job for node in _sources(dataset)]


def named_jobs_of(dataset: Dataset) -> list[str]:
    """Return the jobs among `jobs_of` that have a `job_name`."""
    return [node.hello.value.job for node in _sources(dataset) if node.hello.value.named]


def dispatchers_of(dataset: Dataset) -> list[str]:
    """Return the address of the dispatcher of each of `jobs_of`."""
    return [node.read_options.value.dispatcher_address for node in _sources(dataset)]


def reads_in_step(dataset: Dataset) -> bool:
    """Return whether a dataset is a consumer of a coordinated read."""
    return any(node.read_options.value.num_consumers is not None for node in _sources(dataset))


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
        seed: replaces the seeds that the user did not give.
        seed_globals: `Options.seed_globals` of datasets without that option.

    Raises:
        InvalidArgumentError: if a job has a registered dataset, whose options are fixed.
    """

    def seeded(node: Distributed) -> Node:
        registration = node.hello.value.registration
        if registration is None:
            raise InvalidArgumentError(
                "`seed` cannot reach a dataset that is registered already: give it with "
                "dataset.with_options(stoker.Options(seed=...)) before register_dataset"
            )
        defaults = Options(seed_globals=seed_globals or None)
        options = defaults.merge(registration.options).merge(Options(seed=seed))
        return _with_hello(node, registration=with_options(registration, options))

    return _replaced(dataset, seeded)


def as_consumer(
    dataset: Dataset, consumer_index: int, num_consumers: int, jobs: Mapping[str, str]
) -> Dataset:
    """Return the dataset read as a consumer of `num_consumers`, which end at the same step.

    Args:
        dataset: reads from a service. What was distributed with `num_consumers` is not changed.
        consumer_index: in [0, `num_consumers`).
        num_consumers: number of processes that read in step.
        jobs: the common job of all consumers for each of `jobs_of`. Readers of a deterministic
            epoch need none: each process has the seed that the caller gives all of them.
    """

    def coordinated(node: Distributed) -> Node:
        options = node.read_options.value
        if options.num_consumers is not None:
            return node
        if node.positions is not None:
            return _part_of_epoch(node, node.positions, consumer_index, num_consumers)
        job = jobs[node.hello.value.job]
        options = dataclasses.replace(
            options, job_name=job, consumer_index=consumer_index, num_consumers=num_consumers
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
            consumer_index=consumer_index,
            registration=registration,
        )
        return msgspec.structs.replace(
            node,
            read_options=Pickled.of(options),
            size=UNKNOWN_CARDINALITY if node.size != INFINITE_CARDINALITY else node.size,
            length=UNKNOWN_CARDINALITY,
        )

    return _replaced(dataset, coordinated)


def _part_of_epoch(node: Distributed, positions: int, index: int, count: int) -> Distributed:
    """Return a deterministic epoch read by one of several processes, which end at one step."""
    options = dataclasses.replace(
        node.read_options.value, consumer_index=index, num_consumers=count, together=count
    )
    node = _with_hello(node, consumer_index=index)
    size = cardinality_of(options, positions)
    return changed(node, read_options=Pickled.of(options), size=size)


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
