"""Checks of what a client asks for against its processing mode, for trainer and dispatcher."""

from collections.abc import Iterable

from stoker.dataset.options import Options
from stoker.dataset.positions.counted import NotCounted, Positions
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stoker.dataset.tree.splits import Source, Unsplittable
from stoker.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from stoker.service import messages as m
from stoker.service.rules.processing_modes import ShardingPolicy


def frees_local_tasks(parameters: m.JobParameters) -> bool:
    """Return whether the tasks of a LOCAL job occupy the trainer's processor and end with it.

    Under other policies the next client gets their splits; a cross-trainer cache stays for other
    trainers.
    """
    is_off = parameters.processing_mode is ShardingPolicy.OFF
    is_local = parameters.target_workers == "LOCAL"
    return is_off and is_local and not parameters.use_cross_trainer_cache


def deleted(task_id: int, worker: str, job: str) -> FailedPreconditionError:
    """Return the error of a client that would read on where a closed iterator has stopped.

    Args:
        task_id: the task.
        worker: the address of its worker.
        job: the name of its job.
    """
    return FailedPreconditionError(
        f"Got request for local task {task_id} of worker {worker}, which has been deleted. You may "
        "be creating a duplicate iteration which has already finished. To fix this, make sure to "
        "create your dataset only once, as opposed to re-creating it repeatedly inside a loop. The "
        f"first iterator of job {job!r} in this process was closed before its end; each iter() of "
        "one dataset object, and another job_name, reads the data anew"
    )


def assigns_splits(policy: ShardingPolicy) -> bool:
    """Return whether workers read the splits that the dispatcher assigns to them."""
    return policy is ShardingPolicy.DYNAMIC


def reads_by_position(policy: ShardingPolicy) -> bool:
    """Return whether clients ask workers for positions of an epoch."""
    return policy is ShardingPolicy.DETERMINISTIC


def check_counted(positions: Positions | None) -> int:
    """Return the number of positions of a dataset, which "deterministic_epoch" needs.

    Raises:
        UnimplementedError: if they are not known; names the first node that prevents this.
    """
    if positions is None:
        raise UnimplementedError(
            "the dataset was registered by an older stoker, which did not count its positions: "
            'register it again, or use processing_mode="distributed_epoch"'
        )
    if isinstance(positions, NotCounted):
        raise UnimplementedError(
            f"`{positions.kind}` ({positions.site}) has no known positions, which "
            f'"deterministic_epoch" needs: {positions.why}'
        )
    return positions.length


def check_splittable(policy: ShardingPolicy, sources: Iterable[Source]) -> None:
    """Check that every source can be split, if `policy` assigns splits.

    Raises:
        UnimplementedError: if a source cannot be split; names it.
    """
    # The trainer checks first, at the line of the user; the dispatcher checks registered datasets.
    for source in sources if assigns_splits(policy) else ():
        if isinstance(source.splits, Unsplittable):
            raise UnimplementedError(
                f"`{source.kind}` ({source.site}) cannot be split: {source.splits.why}. "
                'Use a source that can be split, or processing_mode="parallel_epochs", in which '
                "every worker yields the whole dataset: with N workers, each element N times"
            )


def check_cacheable(size: int) -> None:
    """Check the cardinality of a dataset that is read through a cross-trainer cache.

    Raises:
        InvalidArgumentError: if the dataset is finite.
    """
    if size >= 0:
        raise InvalidArgumentError(
            "Cross-trainer caching requires the input dataset to be infinite. Got input with "
            f"cardinality {size}. Add `repeat()` before `distribute`"
        )


def check_repetition(epoch: tuple[int, ...]) -> None:
    """Check the epoch of a reader with a cross-trainer cache.

    Raises:
        InvalidArgumentError: if it is not the first.
    """
    if any(epoch):
        raise InvalidArgumentError(
            "Cross-trainer caching requires infinite datasets and disallows multiple repetitions "
            f"of the same dataset. Got repetition {max(epoch)}: read on with one iterator. To read "
            "from the cache again, make a new dataset by `distribute`"
        )


def check_index(hello: m.ClientHello) -> None:
    """Check that a consumer has a valid index, and another client none.

    Raises:
        InvalidArgumentError: if not.
    """
    index, count = hello.consumer_index, hello.parameters.num_consumers
    if index is None and count is None:
        return
    # Consumers of a deterministic epoch do not know each other, nor each other's number.
    if count is None and reads_by_position(hello.parameters.processing_mode):
        return
    if index is None or count is None or not 0 <= index < count:
        raise InvalidArgumentError(
            f"`consumer_index` must be in [0, num_consumers), got {index!r} of {count!r}"
        )


def check_not_local(parameters: m.JobParameters) -> None:
    """Check that a coordinated read is not one of local workers.

    Raises:
        InvalidArgumentError: if it is.
    """
    if parameters.num_consumers is not None and parameters.target_workers == "LOCAL":
        raise InvalidArgumentError(
            'Coordinated reads require non-local workers, but `target_workers` is "LOCAL". All '
            'consumers read the same workers: use target_workers="ANY" or "AUTO"'
        )


def check_coordinated(hello: m.ClientHello, size: int, options: Options) -> None:
    """Check that a dataset can be read in rounds.

    Raises:
        InvalidArgumentError: if the client reads local workers only.
        FailedPreconditionError: if the dataset is finite and its options do not allow that.
    """
    check_not_local(hello.parameters)
    unknown = size in (INFINITE_CARDINALITY, UNKNOWN_CARDINALITY)
    if not unknown and not options.finite_coordinated:
        raise FailedPreconditionError(
            "Round robin reads require that the input dataset has infinite cardinality, but the "
            f"dataset has cardinality {size}. Consider adding a `.repeat()` transformation "
            "to the dataset; or end all consumers at the same step: "
            "Dataset.with_options(stoker.Options(finite_coordinated=True))"
        )
