"""`DataLoader`: the batches of a stoker Dataset as tensors."""

import warnings
from collections.abc import Callable
from typing import Any, Generic

import torch

from stoker.adapters.absent import ABSENT, NO_PROCESSES, check_absent
from stoker.adapters.epochs import Epochs
from stoker.adapters.iteration import LoaderIterator
from stoker.adapters.ranks import given_rank
from stoker.adapters.reading import check_dataset, check_drop_last
from stoker.adapters.resuming import ResumableEpochs
from stoker.adapters.steps import Steps
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.iterator import T_co
from stoker.errors import InvalidArgumentError
from stoker.torch.delivery import CudaDelivery, Delivery
from stoker.torch.distribution import TorchFramework, drawn_seed

_ABSENT = ABSENT | {
    "num_workers": (
        0,
        (
            f"{NO_PROCESSES}; for PyTorch's own worker processes, use "
            "torch.utils.data.DataLoader(stoker.torch.IterableDataset(dataset), num_workers=n)"
        ),
    ),
    "pin_memory_device": ("", "use device"),
}


class DataLoader(ResumableEpochs, Generic[T_co]):
    """The batches of a stoker Dataset as tensors; each ``iter(loader)`` is a new epoch.

    The arguments have the names of `torch.utils.data.DataLoader`. The pipeline runs on threads of
    this process, or, after `Dataset.distribute`, on the workers of a service; there are no worker
    processes (`num_workers`). Each rank of a `torch.distributed` training reads its part of the
    dataset; all ranks get the same number of batches.

    Args:
        dataset: a stoker Dataset, whose elements are batches or, with `batch_size`, samples.
        batch_size: samples in a batch; ``None``: the elements of `dataset` are the batches.
        shuffle: draw the samples of each epoch in a new random order, from the whole dataset.
        drop_last: drop a last batch with fewer samples.
        collate_fn: makes a batch of a list of samples, whose arrays are tensors; without
            `batch_size`, of a sample; runs in this process. ``None``: arrays are stacked.
        pin_memory: copy batches to page-locked memory if there is a GPU.
        generator: draws the seed of `shuffle` and of all random steps without seed.
        seed: this seed as an int, equal on all ranks. Without both, the seed is drawn from
            PyTorch's default generator, so that `torch.manual_seed` repeats a run, or is 0 with
            several ranks.
        prefetch_factor: batches that are ready ahead of the trainer; 0: none.
        device: device to copy the batches to, for a GPU while the trainer computes; such as "cuda",
            the current device of the thread that reads. ``None``: tensors are in the memory of this
            process.
        rank: of this process among the processes that train together; ``None``: the rank of
            `torch.distributed`, or of the environment (RANK). Give both for groups of your own.
        world_size: number of ranks; ``None``: as `rank`.
        unsupported: further arguments of PyTorch's DataLoader; default values are accepted.

    Raises:
        InvalidTypeError: if `dataset` is not a stoker Dataset, or an argument does not apply; the
            message says what to use.
        InvalidArgumentError: if an argument is out of range.

    Example:
        >>> import stoker.torch
        >>> dataset = stoker.Dataset.range(6).map(float)
        >>> for batch in stoker.torch.DataLoader(dataset, batch_size=4):
        ...     print(batch)
        tensor([0., 1., 2., 3.], dtype=torch.float64)
        tensor([4., 5.], dtype=torch.float64)
    """

    _called = "stoker.torch.DataLoader"

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        *,
        drop_last: bool = False,
        collate_fn: Callable[[Any], T_co] | None = None,
        pin_memory: bool = False,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        prefetch_factor: int | None = 2,
        device: torch.device | str | int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **unsupported: Any,
    ) -> None:
        check_absent(unsupported, _ABSENT, self._called)
        self.dataset = check_dataset(dataset, self._called)
        self.batch_size = None if batch_size is None else arguments.size("batch_size", batch_size)
        self.drop_last = check_drop_last(drop_last, batch_size)
        self.collate_fn = collate_fn
        self.pin_memory = _can_pin(arguments.flag("pin_memory", pin_memory))
        self.device = _checked_device(device)
        # PyTorch has None as its default without worker processes.
        ahead = 0 if prefetch_factor is None else prefetch_factor
        self.prefetch_factor = arguments.integer("prefetch_factor", ahead, minimum=0)
        self.generator = generator
        # The collate_fn gets samples and makes the batch.
        self._samples = self.batch_size if collate_fn is not None else None
        self._epochs = Epochs(
            dataset,
            TorchFramework(),
            batch_size=self.batch_size if collate_fn is None else None,
            drop_last=self.drop_last,
            shuffle=shuffle,
            seed=_seed_of(seed, generator),
            rank=given_rank(rank, world_size),
            # In elements of the dataset: a batch of a collate_fn takes `batch_size` elements.
            prefetch=self.prefetch_factor * (self._samples or 1),
        )

    def __iter__(self) -> LoaderIterator[T_co]:
        # With drop_last, a rest that is too short for a batch is no further step.
        least = self._samples if self._samples is not None and self.drop_last else 1
        iterator, progress = self._epochs.start(least)
        kind, pin_memory, device, ahead = Delivery, self.pin_memory, self.device, 0
        if device is not None and device.type == "cuda":
            kind, pin_memory, ahead = CudaDelivery, True, self.prefetch_factor
            if device.index is None:  # the thread that copies has another current device
                device = torch.device("cuda", torch.cuda.current_device())
        delivery = kind(self.collate_fn, self._samples is not None, pin_memory, device)
        steps = Steps(iterator, delivery.convert, self._samples, self.drop_last)
        return LoaderIterator(iterator, progress, steps, delivery.receive, ahead)

    def __len__(self) -> int:
        count = super().__len__()
        if self._samples is None:
            return count
        return count // self._samples if self.drop_last else -(-count // self._samples)


def _seed_of(seed: Any, generator: Any) -> int | None:
    if generator is None:
        return arguments.seed(seed)
    if seed is not None:
        raise InvalidArgumentError("`seed` and `generator` exclude each other; give one of them")
    # Drawn once: the order of an epoch follows from the number of the epoch, also after a resume.
    return drawn_seed(generator)


def _can_pin(pin_memory: bool) -> bool:
    # PyTorch warns and continues too: one script runs with and without a GPU.
    if pin_memory and not torch.cuda.is_available():
        warnings.warn(
            "`pin_memory` has no effect: torch.cuda.is_available() is False", stacklevel=3
        )
        return False
    return pin_memory


def _checked_device(device: Any) -> torch.device | None:
    if device is None:
        return None
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgumentError(
            f"`device` must be a torch.device or its name, such as 'cuda'; got {device!r}"
        ) from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InvalidArgumentError(
            f"`device` is {device!r}, but torch.cuda.is_available() is False; use 'cpu' or None"
        )
    return found
