"""`DataLoader`: the batches of a stoker Dataset as tensors."""

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from stoker.adapters.rank_share import shuffled
from stoker.adapters.ranks import Rank, given_rank
from stoker.adapters.reading import check_dataset, common_jobs, read_as, with_seed
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.errors import InvalidArgumentError
from stoker.service.consumers import is_distributed, named_jobs_of, with_own_jobs
from stoker.torch.arguments import check_absent
from stoker.torch.distribution import NO_GROUP, current_rank, has_process_group, of_rank_0
from stoker.torch.iteration import Delivery, LoaderIterator, Progress


class DataLoader:
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
            `batch_size`, of one sample. It runs in this process. ``None``: arrays are stacked.
        pin_memory: copy batches to page-locked memory if there is a GPU.
        generator: draws the seed of `shuffle` and of other random steps without seed.
        seed: that seed as an int. Without both, it is drawn from PyTorch's default generator, so
            that `torch.manual_seed` repeats a run; with several ranks it is 0.
        prefetch_factor: batches that are ready ahead of the trainer; 0: none.
        device: device to copy the batches to, while the trainer computes if it is a GPU; such as
            "cuda". ``None``: tensors are in the memory of this process.
        rank: of this process among those that train together; ``None``: that of
            `torch.distributed`, or of the environment (RANK). Give both for groups of your own.
        world_size: number of ranks; ``None``: as `rank`.
        unsupported: other arguments of PyTorch's DataLoader; values that are its default are
            accepted.

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

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        *,
        drop_last: bool = False,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        prefetch_factor: int | None = 2,
        device: torch.device | str | int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        **unsupported: Any,
    ) -> None:
        check_absent(unsupported)
        self.dataset = check_dataset(dataset, "stoker.torch.DataLoader")
        self.batch_size = None if batch_size is None else arguments.size("batch_size", batch_size)
        self.drop_last = arguments.flag("drop_last", drop_last)
        if self.drop_last and self.batch_size is None:
            raise InvalidArgumentError(
                "`drop_last` needs `batch_size`; of a dataset of batches, drop the last with "
                "dataset.batch(n, drop_remainder=True)"
            )
        self.collate_fn = collate_fn
        self.pin_memory = _can_pin(arguments.flag("pin_memory", pin_memory))
        self.device = _checked_device(device)
        ahead = 0 if prefetch_factor is None else prefetch_factor
        self.prefetch_factor = arguments.integer("prefetch_factor", ahead, minimum=0)
        self.generator = generator
        self._seed = _seed_of(seed, generator)
        self._rank = given_rank(rank, world_size)
        self._source = _shuffled(dataset, shuffle)
        if is_distributed(dataset):
            self._source = with_own_jobs(self._source)
        self._epochs = _epochs_of(self._source)
        self._jobs: dict[str, str] | None = None
        self._part: Dataset | None = None
        self._resumed: dict[str, Any] | None = None
        self._progress: Progress | None = None

    def __iter__(self) -> LoaderIterator:
        state, self._resumed = self._resumed, None
        dataset = self._dataset()
        if state is None:
            epoch = self._epochs.begin()
            iterator = dataset.iterator(epoch=epoch)
        else:
            epoch = state["epoch"]
            iterator = dataset.iterator(state=state)
            self._epochs.set_next(epoch + 1)
        self._progress = Progress(epoch, iterator)
        return LoaderIterator(iterator, self._delivery(), self._progress)

    def __len__(self) -> int:
        if is_distributed(self.dataset) and self._resolved_rank().world_size > 1:
            raise TypeError(
                "the number of batches of a rank over a service is unknown until they are read"
            )
        count = len(self._dataset())
        if self.collate_fn is None or self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Give the next ``iter(loader)`` the number `epoch`; the epochs after it follow.

        Without, epochs are counted from 0. With several ranks, call it if a rank may have begun
        more epochs than others, for example after a resume.

        Args:
            epoch: 0 or more.
        """
        self._epochs.set_next(
            arguments.integer("epoch", epoch, minimum=0, what="an int of 0 or more")
        )
        self._resumed = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch as small JSON, for `load_state_dict`.

        Between epochs it is the number of the next epoch. It is the same on all ranks.

        Raises:
            UnimplementedError: within an epoch of a dataset that reads from a service.
        """
        progress = self._progress
        if self._resumed is not None:
            epoch, state = self._resumed["epoch"], dict(self._resumed)
        elif progress is None or progress.ended or progress.epoch >= self._epochs.next:
            epoch, state = self._epochs.next, None
        else:
            epoch, state = progress.epoch, progress.state()
        return {"epoch": epoch, "seed": self._dataset().options().seed, "iterator": state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the next ``iter(loader)`` after the batch of a state.

        Args:
            state_dict: from `state_dict` of a loader with the same dataset and arguments.

        Raises:
            InvalidArgumentError: if it is not such a state, or its seed differs from that given.
        """
        try:
            epoch, seed, state = (state_dict[name] for name in ("epoch", "seed", "iterator"))
        except (KeyError, TypeError) as error:
            raise InvalidArgumentError(
                f"`state_dict` must be what DataLoader.state_dict() returned; got {state_dict!r}"
            ) from error
        given = self._seed if self._seed is not None else self.dataset.options().seed
        if given is not None and given != seed:
            raise InvalidArgumentError(
                f"`state_dict` belongs to a loader with seed {seed}, and this one has seed {given}"
            )
        self._seed, self._part = seed, None
        self.set_epoch(epoch)
        self._resumed = state

    def _resolved_rank(self) -> Rank:
        return self._rank or current_rank()

    def _dataset(self) -> Dataset:
        """Return the part of the dataset that this rank reads, in batches."""
        if self._part is None:
            rank = self._resolved_rank()
            dataset = self._source
            if self.batch_size is not None and self.collate_fn is None:
                dataset = dataset.batch(self.batch_size, drop_remainder=self.drop_last)
            if self._seed is None and dataset.options().seed is None and rank.world_size == 1:
                self._seed = _drawn(None)
            dataset = read_as(with_seed(dataset, self._seed), rank, self._common_jobs(rank))
            samples = self.batch_size if self.collate_fn is not None else None
            ahead = self.prefetch_factor * (samples or 1)
            self._part = (
                dataset if _is_read_ahead(dataset) or not ahead else dataset.prefetch(ahead)
            )
        return self._part

    def _common_jobs(self, rank: Rank) -> dict[str, str]:
        if self._jobs is None and rank.world_size > 1 and is_distributed(self._source):
            agree = of_rank_0 if has_process_group() else None
            self._jobs = common_jobs(self._source, agree, NO_GROUP)
        return self._jobs or {}

    def _delivery(self) -> Delivery:
        to_gpu = self.device is not None and self.device.type == "cuda"
        return Delivery(
            batch_size=self.batch_size if self.collate_fn is not None else None,
            drop_last=self.drop_last,
            collate_fn=self.collate_fn,
            pin_memory=self.pin_memory or to_gpu,
            device=self.device,
            prefetch=self.prefetch_factor,
        )


class _Epochs:
    """Number of the next epoch."""

    def __init__(self) -> None:
        self.next = 0

    def begin(self) -> int:
        """Return the number of the epoch that begins."""
        with _lock:
            self.next += 1
            return self.next - 1

    def set_next(self, epoch: int) -> None:
        """Set the number of the next epoch."""
        with _lock:
            self.next = epoch


_lock = threading.Lock()
_named: dict[tuple[str, ...], _Epochs] = {}


def _epochs_of(dataset: Dataset) -> _Epochs:
    """Return the count of epochs; loaders of one named job share it, as they share its epochs."""
    names = tuple(named_jobs_of(dataset))
    return _named.setdefault(names, _Epochs()) if names else _Epochs()


def _is_read_ahead(dataset: Dataset) -> bool:
    return dataset.node.kind in {"distribute", "prefetch"}


def _shuffled(dataset: Dataset, shuffle: Any) -> Dataset:
    if shuffle is None or not arguments.flag("shuffle", shuffle):
        return dataset
    if is_distributed(dataset):
        raise InvalidArgumentError(
            "`shuffle` cannot reach what workers read; call dataset.shuffle(buffer_size) before "
            "distribute"
        )
    cardinality = dataset.cardinality()
    if cardinality < 0:
        raise InvalidArgumentError(
            "`shuffle` draws from the whole dataset, whose length is unknown or infinite; use "
            "dataset.shuffle(buffer_size) before the batches"
        )
    return shuffled(dataset)


def _drawn(generator: torch.Generator | None) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _seed_of(seed: Any, generator: Any) -> int | None:
    if generator is None:
        return arguments.seed(seed)
    if seed is not None:
        raise InvalidArgumentError("`seed` and `generator` exclude each other; give one of them")
    return _drawn(generator)


def _can_pin(pin_memory: bool) -> bool:
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
