"""The epochs of a dataset that a training process reads in order."""

import os
import warnings
from contextlib import suppress
from typing import Any

from stoker.adapters import reading
from stoker.adapters.passes import counter_of
from stoker.adapters.rank_share import shuffled
from stoker.adapters.ranks import Rank, rank_of_environment
from stoker.dataset import arguments
from stoker.dataset.dataset import Dataset
from stoker.dataset.iterator import Iterator
from stoker.dataset.tree.local_form import local_form
from stoker.errors import InvalidArgumentError, UnimplementedError
from stoker.service.api.consumers import (
    begun_at,
    is_distributed,
    reads_by_position,
    with_own_jobs,
)


class EpochProgress:
    """Position of the reader in an epoch.

    Args:
        epoch: number of the epoch.
        iterator: of the dataset, before its first element is read.

    Attributes:
        ended: the reader has got all elements.
        last: position from which the epoch has no further step; ``None``: unknown.
    """

    def __init__(self, epoch: int, iterator: Iterator) -> None:
        self.epoch = epoch
        self.ended = False
        self.last: int | None = None
        self._position = 0
        self._begin: dict[str, Any] = {}
        try:
            # Over a service the dispatcher assigns elements: an epoch has no position here.
            self._begin = iterator.state_dict()
        except UnimplementedError:
            return
        self._position = self._begin["position"]

    @property
    def base(self) -> int:
        """The position at which the ranks began, if other numbers of ranks read before."""
        return self._begin.get("base") or 0

    def reach(self, position: int) -> None:
        """Note that the reader got the elements and errors up to `position` of the iterator."""
        position += self._begin.get("position", 0)
        self._position = max(self._position, position)
        # Loops that count to len(loader) do not read the end.
        self.ended = self.ended or (self.last is not None and self._position >= self.last)

    def state(self) -> dict[str, Any] | None:
        """Return the state of the iterator at the reader's position; ``None`` without a state."""
        return {**self._begin, "position": self._position} if self._begin else None


class Framework:
    """The parts of a framework that determine what a process reads; subclasses are adapters'.

    This class has the ranks of the environment, which cannot communicate.
    """

    advice: str = "give `rank` and `world_size`"
    """Completes the error of ranks that cannot communicate."""

    seeds_globals: bool = False
    """A seed of the loader includes the global generators of worker processes."""

    def current_rank(self) -> Rank:
        """Return the rank of this process."""
        return rank_of_environment()

    def agree(self) -> reading.Agree | None:
        """Return the function that gets values of rank 0; ``None`` if ranks cannot communicate."""
        return None

    def draw_seed(self) -> int:
        """Return a random seed; drawn by the framework, if the framework has a global state."""
        return int.from_bytes(os.urandom(7), "little")


class Epochs:
    """Start the epochs of a rank's part of a dataset; save and restore the position.

    Args:
        dataset: the whole dataset.
        framework: of the trainer.
        batch_size: elements to stack; ``None``: none.
        drop_last: drop a last batch that is shorter.
        shuffle: as given by the user.
        seed: replaces the seeds that the user did not give; ``None``: the seed of the dataset,
            which is drawn once for all derived datasets.
        rank: as given by the user; ``None``: the rank of the framework when first needed.
        prefetch: elements of the result that are read ahead.

    Attributes:
        batch_size: as given.
        shuffle: a bool.

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
        self.batch_size = batch_size
        self._drop_last = drop_last
        self.shuffle = _checked_shuffle(dataset, shuffle)
        self._seed = seed
        self._rank = rank
        self._prefetch = prefetch
        self._source = dataset
        if is_distributed(dataset):
            # Loaders that read the same anonymous job would divide the elements of the job.
            seeds_globals = framework.seeds_globals
            self._source = with_own_jobs(dataset, seed, seed_globals=seeds_globals)
        self._count = counter_of(self._source, rank)
        self._drawn_for_shuffle: int | None = None
        self._jobs: dict[str, str] | None = None
        self._part: tuple[Rank, Dataset] | None = None
        self._resumed: dict[str, Any] | None = None
        self._progress: EpochProgress | None = None
        self._has_warned = False

    @property
    def rank(self) -> Rank:
        """The rank of this process."""
        return self._rank or self._framework.current_rank()

    def settings(self) -> dict[str, Any]:
        """Return the arguments, for the repr of a loader."""
        return {
            "dataset": self._source,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self._drop_last,
            "seed": self._given_seed(),
            "rank": None if self._rank is None else self._rank.index,
            "world_size": None if self._rank is None else self._rank.world_size,
        }

    def start(self, least: int = 1) -> tuple[Iterator, EpochProgress]:
        """Start the next epoch, or continue that of a state.

        Args:
            least: elements of the dataset that the shortest step of the reader takes.
        """
        dataset = self.dataset()
        resumed = self._resumed
        if resumed is None:
            epoch = self._count.begin()
            try:
                iterator = dataset.iterator(epoch=epoch)
            except BaseException:
                self._count.set_next(epoch)  # so that the next attempt begins the same epoch
                raise
        else:
            epoch = resumed["epoch"]
            self._check_world_size(resumed)
            iterator = dataset.iterator(state=resumed["iterator"])
            self._count.set_next(epoch + 1)
            self._resumed = None
        self._progress = progress = EpochProgress(epoch, iterator)
        with suppress(TypeError):  # the length is unknown
            progress.last = len(begun_at(dataset, progress.base)) - least + 1
        return iterator, progress

    def __len__(self) -> int:
        reading.check_has_length(self._source, self.rank)
        return len(self._part_of(self.rank, {}))

    def set_next(self, epoch: Any) -> None:
        """Give the next epoch a number."""
        self._count.set_next(epoch)
        self._resumed = self._progress = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the reader as small JSON; a single rank may call this method.

        Within an epoch whose iterator has no state, the position is the number of that epoch; the
        first such state is a warning.
        """
        progress = self._progress
        rank = self.rank
        state = {
            "epoch": self._count.next(),
            "seed": self._seed_of(rank),
            "salts": self._source._salts(),
            "shuffle_salt": self._shuffle_salt(rank),
            "world_size": rank.world_size,
            "iterator": None,
        }
        if self._resumed is not None:
            return state | self._resumed
        if progress is None or progress.ended:
            return state
        position = progress.state()
        within = {} if position is not None else {"within": True}
        if within and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"this state is within epoch {progress.epoch}, which cannot be continued (as over "
                "a service): after load_state_dict the epoch starts again from its beginning. Call "
                "state_dict after the last batch of an epoch, or distribute the dataset with "
                'processing_mode="deterministic_epoch" to continue within one',
                stacklevel=3,
            )
        return state | {"epoch": progress.epoch, "iterator": position} | within

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue at a state with the next `start`.

        Raises:
            InvalidArgumentError: if the value is not a state, or of another seed.
        """
        try:
            epoch, seed, position = (state_dict[name] for name in ("epoch", "seed", "iterator"))
        except (KeyError, TypeError) as error:
            raise InvalidArgumentError(
                f"`state_dict` must be what state_dict() returned; got {state_dict!r}"
            ) from error
        given = self._given_seed()
        # A rank above 0 takes the seed of rank 0 when the rank begins to read.
        takes_seed_of_rank_0 = self._rank is None and self.rank.index > 0
        if given is not None and given != seed and not takes_seed_of_rank_0:
            raise InvalidArgumentError(
                f"`state_dict` belongs to a loader with seed {seed}, and this one has seed {given}"
            )
        self.set_next(epoch)
        # A new process draws other salts, and with other salts random steps have another order.
        reading.adopt_draws(self._source, seed, state_dict.get("salts", ()))
        self._drawn_for_shuffle, self._part = state_dict.get("shuffle_salt", 0), None
        if position is not None:
            self._resumed = {
                "epoch": epoch,
                "iterator": dict(position),
                "world_size": state_dict.get("world_size"),
            }
        elif state_dict.get("within"):
            if is_distributed(self._source):  # this job may have had the epoch already
                self._source, self._jobs = with_own_jobs(self._source), None
            warnings.warn(
                f"the state was saved within epoch {epoch}, which cannot be continued (as over a "
                "service): the epoch starts again from its beginning. Save states between epochs "
                "to read no element twice",
                stacklevel=3,
            )

    def dataset(self) -> Dataset:
        """Return the part of the dataset that this rank reads, in batches.

        With several ranks, the first call may communicate with all ranks.
        """
        rank = self.rank
        # The part is kept, since caches in memory belong to the nodes of one dataset.
        if self._part is None or self._part[0] != rank:
            self._part = rank, self._part_of(rank, self._agree(rank))
        return self._part[1]

    def _part_of(self, rank: Rank, jobs: dict[str, str]) -> Dataset:
        dataset = self._source
        if self.shuffle:
            dataset = shuffled(dataset, self._shuffle_salt(rank))
        if self.batch_size is not None:
            dataset = dataset.batch(self.batch_size, drop_remainder=self._drop_last)
        part = reading.read_as(reading.with_seed(dataset, self._seed), rank, jobs)
        # A second buffer behind a service or a prefetch would hold more batches, and save no time.
        is_read_ahead = local_form(part.node).root.kind in {"distribute", "prefetch"}
        return part if is_read_ahead else part.prefetch(self._prefetch)

    def _given_seed(self) -> int | None:
        return self._source.options().seed if self._seed is None else self._seed

    def _seed_of(self, rank: Rank) -> int:
        given = self._given_seed()
        if given is not None:
            return given
        if rank.world_size > 1:
            # Ranks that cannot communicate must shuffle alike.
            tied = reads_by_position(self._source)
            return reading.tie_draws(self._source) if tied else reading.SEED_OF_RANKS
        return self._source._draw_seed(self._framework.draw_seed)

    def _shuffle_salt(self, rank: Rank) -> int:
        """Return the salt of `shuffle`.

        A loader draws its own seed, so that two loaders which are read together yield random pairs.
        """
        if not self.shuffle or rank.world_size > 1 or self._given_seed() is not None:
            return 0
        if self._drawn_for_shuffle is None:
            self._drawn_for_shuffle = self._framework.draw_seed()
        return self._drawn_for_shuffle

    def _agree(self, rank: Rank) -> dict[str, str]:
        """Return the jobs of all ranks, and take the seed of rank 0."""
        self._seed_of(rank)  # draws the seed of the dataset
        if rank.world_size == 1:
            return {}
        if self._jobs is None:
            agree, advice = self._framework.agree(), self._framework.advice
            self._source, self._seed, self._jobs = reading.agreed(
                self._source, self._seed, self._rank, agree, advice
            )
        return self._jobs

    def _check_world_size(self, resumed: dict[str, Any]) -> None:
        world_size, own = resumed["world_size"], self.rank.world_size
        # A position counts the elements of a rank, whose part depends on the number of ranks. That
        # of a deterministic epoch says where all ranks are.
        is_of_all = "consumers" in resumed["iterator"] or reads_by_position(self._source)
        if world_size not in {None, own} and not is_of_all:
            raise InvalidArgumentError(
                f"the state within an epoch is of {world_size} ranks, and this training has {own}: "
                "ranks have other parts of the epoch. Continue with the next epoch "
                f"(set_epoch), or with {world_size} ranks; over a service in "
                '"deterministic_epoch" the number of ranks may change'
            )


def _checked_shuffle(dataset: Dataset, shuffle: Any) -> bool:
    if shuffle is None or not arguments.flag("shuffle", shuffle):
        return False
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
    return True
