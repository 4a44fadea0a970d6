"""The dataset that a process reads, among the ranks of a training and their child processes."""

from collections.abc import Callable, Sequence
from typing import Any

from stoker.adapters.rank_share import part_of, share_of
from stoker.adapters.ranks import Rank
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.options import Options
from stoker.errors import FailedPreconditionError, InvalidArgumentError, InvalidTypeError
from stoker.service.api import consumers

SEED_OF_RANKS = 0
"""Seed of all ranks if the user gave none; like PyTorch's DistributedSampler."""

Agree = Callable[[list[str]], list[str]]
"""Returns the value that rank 0 passed, on all ranks."""


def check_dataset(dataset: Any, adapter: str) -> Dataset:
    """Return `dataset` if it is a stoker Dataset.

    Raises:
        InvalidTypeError: otherwise; the message says how to make a Dataset.
    """
    if isinstance(dataset, Dataset):
        return dataset
    modules = [kind.__module__.partition(".")[0] for kind in type(dataset).__mro__[:-1]]
    raise InvalidTypeError(
        f"`dataset` of {adapter} must be a stoker.Dataset; got a {modules[0]}."
        f"{type(dataset).__qualname__}: {_advice(dataset, modules)}"
    )


def _advice(dataset: Any, modules: list[str]) -> str:
    if "stoker" in modules:  # an IterableDataset, or a loader
        return "give the Dataset that it was made of"
    # A subclass of the user is recognized by the library of its base class.
    for module in modules:
        if converter := _CONVERTERS.get(module):
            return f"convert it with {converter}"
    if isinstance(dataset, list | tuple | dict):
        return f"convert it with {_CONVERTERS['numpy']}"
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return f"convert it with {_CONVERTERS['torch']} or stoker.grain.from_grain(dataset)"
    if hasattr(dataset, "__iter__"):
        return "convert it with stoker.Dataset.from_generator(lambda: dataset)"
    return "build one with the class methods of stoker.Dataset"


_CONVERTERS = {
    "torch": "stoker.torch.from_torch(dataset)",
    "tensorflow": "stoker.Dataset.from_generator(dataset.as_numpy_iterator)",
    "numpy": "stoker.Dataset.from_tensor_slices(dataset)",
    "datasets": "stoker.hugging_face.from_hugging_face(dataset)",
    "grain": "stoker.grain.from_grain(dataset)",
}


def check_drop_last(drop_last: Any, batch_size: Any) -> bool:
    """Return `drop_last` if the value is a bool that has an effect.

    Raises:
        InvalidArgumentError: if the value has no effect.
    """
    if arguments.flag("drop_last", drop_last) and batch_size is None:
        raise InvalidArgumentError(
            "`drop_last` needs `batch_size`; of a dataset of batches, drop the last with "
            "dataset.batch(n, drop_remainder=True)"
        )
    return bool(drop_last)


def with_seed(dataset: Dataset, seed: int | None) -> Dataset:
    """Return the dataset with `Options.seed` set, unless `seed` is None."""
    return dataset if seed is None else dataset.with_options(Options(seed=seed))


def tie_draws(dataset: Dataset) -> int:
    """Replace the draws of this process by those that all ranks have; return the seed.

    These are the seed `SEED_OF_RANKS` without salts, or those of the state from which all resume.
    """
    if not dataset._seed.is_common:
        adopt_draws(dataset, SEED_OF_RANKS, ())
    return dataset._draw_seed()


def adopt_draws(dataset: Dataset, seed: int, salts: Sequence[int]) -> None:
    """Replace the draws of this process by those of the state of a loader."""
    dataset._adopt_seeds(seed, salts)
    dataset._seed.is_common = True


def common_jobs(dataset: Dataset, agree: Agree | None, advice: str) -> dict[str, str]:
    """Return the job that all ranks read in place of each job of this process.

    Args:
        dataset: reads from a service. Readers of deterministic epochs need no common job.
        agree: gets the jobs of rank 0; ``None`` if the ranks cannot communicate.
        advice: completes the error in that case.

    Raises:
        FailedPreconditionError: if a job has no name, and the ranks cannot communicate.
    """
    own = consumers.jobs_of(dataset)
    # Named jobs have the same name on all ranks, which then need not communicate.
    if len(consumers.named_jobs_of(dataset)) == len(own):
        return {job: job for job in own}
    if agree is None:
        raise FailedPreconditionError(
            "several ranks read this dataset, but its job has no name by which they could share "
            f"it; {advice}, or give the same `job_name` to `distribute` on all ranks"
        )
    return dict(zip(own, agree(own), strict=True))


def agreed(
    dataset: Dataset, seed: int | None, rank: Rank | None, agree: Agree | None, advice: str
) -> tuple[Dataset, int | None, dict[str, str]]:
    """Return what several ranks read in common; called by all ranks.

    The dataset has the seed, also in what workers run; the seed is that of rank 0; the jobs are
    those of `common_jobs`, and empty for a local dataset.

    Args:
        dataset: as given by the user.
        seed: as given by the user; may differ among the ranks.
        rank: as given by the user. In a group in which not all processes read, the ranks cannot
            agree on a seed.
        agree: gets the values of rank 0; ``None`` if the ranks cannot communicate.
        advice: completes the error in that case.

    Raises:
        FailedPreconditionError: as `common_jobs`.
    """
    if seed is not None and agree is not None and rank is None:
        seed = int(agree([str(seed)])[0])
    if not consumers.is_distributed(dataset):
        return with_seed(dataset, seed), seed, {}
    if seed is not None:
        # Random steps below `distribute` run on workers, random steps above in this process.
        dataset = consumers.with_seed_of_jobs(with_seed(dataset, seed), seed)
    return dataset, seed, common_jobs(dataset, agree, advice)


def check_has_length(dataset: Dataset, rank: Rank) -> None:
    """Raise TypeError if the number of elements of a rank depends on the remaining ranks."""
    if consumers.jobs_of(dataset) and rank.world_size > 1:
        raise TypeError(
            "the number of elements that a rank reads from a service is unknown until they are read"
        )


def read_as(
    dataset: Dataset,
    rank: Rank,
    jobs: dict[str, str],
    *,
    process: int = 0,
    processes: int = 1,
) -> Dataset:
    """Return the part of `dataset` that a process reads.

    All ranks get the same number of elements. Over a service the ranks, and their child processes,
    are consumers of a common job; a local dataset and a deterministic epoch are cut by positions.

    Args:
        dataset: the whole dataset.
        rank: of the training.
        jobs: of `common_jobs`; needed if there are several ranks.
        process: number of this child process of the rank.
        processes: child processes of each rank.
    """
    if consumers.is_distributed(dataset):
        return consumers.as_consumer(
            dataset, rank.index, rank.world_size, jobs, process=process, processes=processes
        )
    if rank.world_size > 1:
        # Without a common seed each rank would take a part of a different order.
        if dataset.options().seed is None:
            dataset = with_seed(dataset, SEED_OF_RANKS)
        dataset = share_of(dataset, rank.index, rank.world_size)
    return dataset if processes == 1 else part_of(dataset, process, processes)
