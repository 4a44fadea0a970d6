"""`IterableDataset`: a stoker Dataset for PyTorch's own DataLoader and its worker processes."""

import sys
import warnings
import weakref
from multiprocessing import util
from typing import Any

import torch.utils.data

from stoker.adapters.ownership import next_in_list
from stoker.adapters.passes import Copy, PassCounter, counter_of
from stoker.adapters.ranks import Rank, given_rank
from stoker.adapters.reading import (
    adopt_draws,
    agreed,
    check_dataset,
    check_has_length,
    read_as,
    tie_draws,
    with_seed,
)
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.iterator import Iterator as DatasetIterator
from stoker.dataset.state import check_resumable
from stoker.dataset.tree.local_form import local_form
from stoker.errors import InvalidArgumentError, UnimplementedError
from stoker.service.api.consumers import is_distributed, reads_by_position, with_own_jobs
from stoker.torch.distribution import TorchFramework, has_process_group
from stoker.torch.tensors import to_tensors

_FRAMEWORK = TorchFramework()


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """A stoker Dataset as a dataset of `torch.utils.data.DataLoader`, with any `num_workers`.

    Each pass yields each element once, however the worker processes are started, persistent or not:
    together the workers read what the loader would read without them. Arrays are tensors. Each
    rank of a `torch.distributed` training reads a part, as with `stoker.torch.DataLoader`.

    Batches are best made by the dataset: ``DataLoader(IterableDataset(dataset.batch(32)),
    batch_size=None, num_workers=2)``. With a `batch_size` each worker process makes batches of
    its own elements, so that each may end with a shorter batch, as always in PyTorch.

    Args:
        dataset: a stoker Dataset.
        seed: seed of random steps without seed; ``None``: a seed is drawn now, or is 0 with
            several ranks. The seed must be equal on all ranks.
        rank: of this process; ``None``: the rank of `torch.distributed`, or of the environment.
        world_size: number of ranks; ``None``: as `rank`.

    Raises:
        InvalidTypeError: if `dataset` is not a stoker Dataset.
        InvalidArgumentError: if an argument is out of range.

    Example:
        >>> import stoker.torch, torch
        >>> dataset = stoker.torch.IterableDataset(stoker.Dataset.range(4).batch(2))
        >>> for batch in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2):
        ...     print(batch)
        tensor([0, 1])
        tensor([2, 3])
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        check_dataset(dataset, "stoker.torch.IterableDataset")
        dataset._draw_seed()  # the copies that are forked would draw different seeds
        self._seed = arguments.seed(seed)
        self._dataset = with_seed(dataset, self._seed)
        if is_distributed(dataset):
            self._dataset = with_own_jobs(self._dataset, self._seed, seed_globals=True)
        self._given_rank = given_rank(rank, world_size)
        self._rank = self._given_rank
        self._jobs: dict[str, str] = {}
        self._has_agreed = False
        self._passes = counter_of(self._dataset, self._rank)
        self._passes_here = 0
        self._part: tuple[Any, Dataset] | None = None
        """The reader and its dataset; kept, since caches in memory belong to the nodes."""
        if has_process_group():
            self._prepare()  # a forked worker process cannot

    def __iter__(self) -> "ElementIterator":
        worker = torch.utils.data.get_worker_info()
        number, processes, copy = 0, 1, None
        if worker is not None:
            number, processes = worker.id, worker.num_workers
            copy = Copy(worker.id, self._passes_here)
            self._passes_here += 1
        epoch = self._passes.begin(copy)
        # The trainer may have loaded a state after this copy was made.
        if (seeds := self._passes.seeds()) is not None:
            adopt_draws(self._dataset, *seeds)
        part = self._read(number, processes)
        iterator = ElementIterator(part, epoch, self._passes, copies=processes)
        if worker is not None:
            # Child processes of multiprocessing end without the exit functions of Python.
            util.Finalize(iterator, _close, (weakref.ref(iterator),), exitpriority=0)
        return iterator

    def __len__(self) -> int:
        rank = self._given_rank or _FRAMEWORK.current_rank()
        check_has_length(self._dataset, rank)
        return len(read_as(self._dataset, rank, {}))

    def __repr__(self) -> str:
        seed = "" if self._seed is None else f", seed={self._seed}"
        return f"stoker.torch.IterableDataset({self._dataset!r}{seed})"

    def __bool__(self) -> bool:
        return True  # otherwise `if loader:` would ask for the length

    def set_epoch(self, epoch: int) -> None:
        """Give the next pass the number `epoch`; later passes follow.

        The number reaches the copies in worker processes, persistent processes too. Without, passes
        are counted from 0; a pass that no worker process has begun to read does not count. With
        several ranks, call `set_epoch` if a rank may have begun more passes than another rank, for
        example after an error.

        Args:
            epoch: 0 or more.
        """
        self._passes.set_next(epoch)

    def _prepare(self) -> Rank:
        """Determine the rank, and what the ranks have in common."""
        # A spawned worker process has no process group, and keeps the rank of its parent.
        if self._given_rank is None and (self._rank is None or has_process_group()):
            self._rank = _FRAMEWORK.current_rank()
        rank = self._rank or Rank()
        if rank.world_size == 1:
            return rank
        if self._given_rank is None:
            _warn_if_accelerate_divides()
        if not self._has_agreed:
            # A forked worker process has a process group, but no connections of its own.
            is_trainer = torch.utils.data.get_worker_info() is None
            agree = _FRAMEWORK.agree() if is_trainer else None
            self._dataset, self._seed, self._jobs = agreed(
                self._dataset, self._seed, self._given_rank, agree, _FRAMEWORK.advice
            )
            self._has_agreed = agree is not None
        if reads_by_position(self._dataset) and self._dataset.options().seed is None:
            tie_draws(self._dataset)
        return rank

    def _read(self, number: int, processes: int) -> Dataset:
        """Return what one of the processes that read together reads."""
        rank = self._prepare()
        reader = (rank, number, processes)
        if self._part is None or self._part[0] != reader:
            part = read_as(self._dataset, rank, self._jobs, process=number, processes=processes)
            self._part = reader, part
        return self._part[1]

    def __getstate__(self) -> dict[str, Any]:
        if has_process_group():
            self._prepare()  # what is sent to another process has no process group
        return self.__dict__ | {"_part": None}


class ElementIterator:
    """A pass of an `IterableDataset` in a process, with the state that torchdata asks for.

    torchdata takes states in worker processes after each batch, whether the user asks or not, and
    at the end of a pass loads the last state, but reads nothing. So a worker process has a state
    where the dataset has none, and reading afterwards is an error.

    Args:
        dataset: of this process.
        epoch: number of the pass.
        passes: counts the passes.
        copies: processes that read the pass of this rank together.
    """

    def __init__(self, dataset: Dataset, epoch: int, passes: PassCounter, *, copies: int) -> None:
        self._dataset = dataset
        self._copies = copies
        self._epoch = epoch
        self._passes = passes
        self._iterator: DatasetIterator | None = None
        self._resumed: dict[str, Any] | None = None
        self._place = _BEGIN
        self._refusal = _refusal_of(dataset)

    def __iter__(self) -> "ElementIterator":
        return self

    def __next__(self) -> Any:
        if self._place == _END:
            raise StopIteration
        if self._place == _UNKNOWN:
            raise UnimplementedError(self._refusal)
        holder = next_in_list(self._opened())
        if not holder:
            self._place = _END
            raise StopIteration
        self._place = _WITHIN
        return to_tensors(holder)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this process as small JSON.

        Raises:
            UnimplementedError: if the dataset has no state, as over a service, within a pass, and
                this is no worker process.
        """
        if self._resumed is not None:
            return {"iterator": self._resumed}
        if not self._refusal:
            return {"iterator": self._opened().state_dict()}
        if self._place == _WITHIN and torch.utils.data.get_worker_info() is None:
            raise UnimplementedError(self._refusal)
        return {"iterator": None, "epoch": self._epoch, "place": self._place}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue after the last element of a state, which `state_dict` returned.

        Raises:
            InvalidArgumentError: if copies have other parts of the epoch than in the state.
        """
        self.close()  # torchdata may load a state into an iterator that has begun
        state = state_dict["iterator"]
        if state is not None:
            _check_copies(self._dataset, state, self._copies)
            self._resumed = state
            self._passes.resume(state["epoch"], state["seed"], state["salts"])
            return
        self._epoch = state_dict["epoch"]
        # Within a pass the position is unknown: reading on would repeat or lose elements.
        self._place = _UNKNOWN if state_dict["place"] == _WITHIN else state_dict["place"]
        self._passes.set_next(self._epoch + 1)

    def close(self) -> None:
        """Release threads and connections; idempotent."""
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None

    def _opened(self) -> DatasetIterator:
        if self._iterator is None:
            state, self._resumed = self._resumed, None
            epoch = self._epoch if state is None else None  # a state has its epoch
            self._iterator = self._dataset.iterator(state=state, epoch=epoch)
        return self._iterator


def _warn_if_accelerate_divides() -> None:
    # Not imported: accelerate is no dependency, and a process that uses accelerate has loaded it.
    state = sys.modules.get("accelerate.state")
    if state is not None and state.is_initialized():
        warnings.warn(
            "this IterableDataset reads the part of its rank, and Accelerator.prepare and the "
            "Trainer of transformers divide an IterableDataset among the ranks once more, so that "
            "most elements are lost: give IterableDataset(..., rank=0, world_size=1) for them, or "
            "read a stoker.torch.DataLoader that is not prepared",
            stacklevel=2,
        )


_BEGIN, _WITHIN, _END, _UNKNOWN = "begin", "within", "end", "unknown"
"""Places in a pass."""


def _refusal_of(dataset: Dataset) -> str:
    """Return the reason for which a dataset has no state within a pass; "" if there is a state."""
    try:
        check_resumable(local_form(dataset.node).root)
    except UnimplementedError as error:
        return f"{error}. Save the state of the loader between epochs"
    return ""


def _check_copies(dataset: Dataset, state: Any, copies: int) -> None:
    """Check that a copy has the part of a deterministic epoch that it has in its state."""
    before, now = state.get("consumers", 1), local_form(dataset.node).consumers
    # Copies are up to a step apart: their states do not name one position in the epoch.
    if copies > 1 and before != now:
        raise InvalidArgumentError(
            f"the state is of {before} processes that divide an epoch, and now {now} do: with "
            "worker processes, resume with the same `num_workers` and number of ranks, or use "
            "num_workers=0 or stoker.torch.DataLoader, with which the number of ranks may change"
        )


def _close(reference: "weakref.ref[ElementIterator]") -> None:
    iterator = reference()
    if iterator is not None:
        iterator.close()
