"""The epochs of a dataset that a training process reads, one after the other."""

import os
import threading
from typing import Any

from stoker.adapters.rank_share import shuffled
from stoker.adapters.ranks import Rank
from stoker.adapters.reading import Agree, common_jobs, read_as, with_seed
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.iterator import Iterator
from stoker.errors import InvalidArgumentError, UnimplementedError
from stoker.service.consumers import is_distributed, named_jobs_of, with_own_jobs


class Progress:
    """Position of the reader in one epoch.

    Args:
        epoch: number of the epoch.
        iterator: of the dataset, before its first element is read.
    """

    def __init__(self, epoch: int, iterator: Iterator) -> None:
        self.epoch = epoch
        self.ended = False
        self._position = 0
        self._begin: dict[str, Any] = {}
        self._refusal = ""
        try:
            self._begin = iterator.state_dict()
        except UnimplementedError as error:
            self._refusal = str(error)

    def reach(self, position: int) -> None:
        """Note that the reader got the elements and errors up to `position`."""
        self._position = max(self._position, position)

    def state(self) -> dict[str, Any]:
        """Return the state of the dataset's iterator after what the reader got.

        Raises:
            UnimplementedError: if it has no state.
        """
        if not self._begin:
            raise UnimplementedError(
                f"the loader has no state within an epoch: {self._refusal}. Save it between "
                "epochs, when its state is the number of the next one"
            )
        return {**self._begin, "position": self._begin["position"] + self._position}


class Framework:
    """The parts of a framework that determine what a process reads; subclasses are adapters'."""

    advice: str = "give `rank` and `world_size`"
    """Completes the error of ranks that cannot communicate."""

    def current_rank(self) -> Rank:
        """Return the rank of this process."""
        raise NotImplementedError

    def agree(self) -> Agree | None:
        """Return the function that gets values of rank 0; ``None`` if ranks cannot communicate."""
        raise NotImplementedError

    def draw_seed(self) -> int:
        """Return a random seed; of the framework's own random numbers, if it has a global state."""
        return int.from_bytes(os.urandom(7), "little")


class Epochs:
    """Starts the epochs of one rank's part of a dataset, and has their state.

    Args:
        dataset: the whole dataset.
        framework: of the trainer.
        batch_size: elements to stack; ``None``: none.
        drop_last: drop a last batch that is shorter.
        shuffle: as the user gave it.
        seed: replaces the seeds that the user did not give; ``None``: it is drawn.
        rank: as the user gave it; ``None``: that of the framework when first needed.
        prefetch: elements of the result that are read ahead.

    Raises:
        InvalidArgumentError: if `shuffle` is not possible.
    """

    def __init__(
        self,
        dataset: Dataset,
        framework: Framework,
        *,
        batch_size: int | None,
        drop_last: bool,
        shuffle: Any,
        seed: int | None,
        rank: Rank | None,
        prefetch: int,
    ) -> None:
        self._framework = framework
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._given_seed = dataset.options().seed if seed is None else seed
        self._seed = seed
        self._rank = rank
        self._prefetch = prefetch
        self._source = _shuffled(dataset, shuffle)
        if is_distributed(dataset):
            self._source = with_own_jobs(self._source)
        self._count = _count_of(self._source, rank)
        self._jobs: dict[str, str] | None = None
        self._part: Dataset | None = None
        self._resumed: dict[str, Any] | None = None
        self._progress: Progress | None = None

    @property
    def rank(self) -> Rank:
        """The rank of this process."""
        return self._rank or self._framework.current_rank()

    def start(self) -> tuple[Iterator, Progress]:
        """Start the next epoch, or continue that of a state."""
        state, self._resumed = self._resumed, None
        dataset = self.dataset()
        if state is None:
            epoch = self._count.begin()
            iterator = dataset.iterator(epoch=epoch)
        else:
            epoch = state["epoch"]
            iterator = dataset.iterator(state=state)
            self._count.set_next(epoch + 1)
        self._progress = Progress(epoch, iterator)
        return iterator, self._progress

    def __len__(self) -> int:
        if is_distributed(self._source) and self.rank.world_size > 1:
            raise TypeError(
                "the number of batches of a rank over a service is unknown until they are read"
            )
        return len(self.dataset())

    def set_next(self, epoch: Any) -> None:
        """Give the next epoch a number."""
        what = "an int of 0 or more"
        self._count.set_next(arguments.integer("epoch", epoch, minimum=0, what=what))
        self._resumed = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the reader as small JSON.

        Raises:
            UnimplementedError: within an epoch whose iterator has no state.
        """
        progress = self._progress
        epoch, state = self._count.next, None
        if self._resumed is not None:
            epoch, state = self._resumed["epoch"], dict(self._resumed)
        elif progress is not None and not progress.ended and progress.epoch == epoch - 1:
            epoch, state = progress.epoch, progress.state()
        return {"epoch": epoch, "seed": self.dataset().options().seed, "iterator": state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue at a state with the next `start`.

        Raises:
            InvalidArgumentError: if it is not a state, or of another seed.
        """
        try:
            epoch, seed, state = (state_dict[name] for name in ("epoch", "seed", "iterator"))
        except (KeyError, TypeError) as error:
            raise InvalidArgumentError(
                f"`state_dict` must be what state_dict() returned; got {state_dict!r}"
            ) from error
        if self._given_seed is not None and self._given_seed != seed:
            raise InvalidArgumentError(
                f"`state_dict` belongs to a loader with seed {seed}, and this one has seed "
                f"{self._given_seed}"
            )
        self._seed, self._part = seed, None
        self.set_next(epoch)
        self._resumed = state

    def dataset(self) -> Dataset:
        """Return the part of the dataset that this rank reads, in batches."""
        if self._part is None:
            rank = self.rank
            dataset = self._source
            if self._batch_size is not None:
                dataset = dataset.batch(self._batch_size, drop_remainder=self._drop_last)
            if self._given_seed is None and self._seed is None and rank.world_size == 1:
                self._seed = self._framework.draw_seed()
            part = read_as(with_seed(dataset, self._seed), rank, self._common_jobs(rank))
            is_read_ahead = part.node.kind in {"distribute", "prefetch"}
            self._part = part if is_read_ahead else part.prefetch(self._prefetch)
        return self._part

    def _common_jobs(self, rank: Rank) -> dict[str, str]:
        if self._jobs is None and rank.world_size > 1 and is_distributed(self._source):
            self._jobs = common_jobs(self._source, self._framework.agree(), self._framework.advice)
        return self._jobs or {}


class _Count:
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
_named: dict[tuple[str | Rank | None, ...], _Count] = {}


def _count_of(dataset: Dataset, rank: Rank | None) -> _Count:
    """Return the count of epochs.

    The readers of a named job share it, as they share its epochs; but ranks of one process do not,
    each of which reads every epoch.
    """
    names = named_jobs_of(dataset)
    return _named.setdefault((*names, rank), _Count()) if names else _Count()


def _shuffled(dataset: Dataset, shuffle: Any) -> Dataset:
    if shuffle is None or not arguments.flag("shuffle", shuffle):
        return dataset
    if is_distributed(dataset):
        raise InvalidArgumentError(
            "`shuffle` cannot reach what workers read; call dataset.shuffle(buffer_size) before "
            "distribute"
        )
    if dataset.cardinality() < 0:
        raise InvalidArgumentError(
            "`shuffle` draws from the whole dataset, whose length is unknown or infinite; use "
            "dataset.shuffle(buffer_size) before the batches"
        )
    return shuffled(dataset)
