"""Rank and world size of a training process."""

import os
from dataclasses import dataclass
from typing import Any

from stoker.errors import InvalidArgumentError


@dataclass(frozen=True)
class Rank:
    """Position of a process among the processes that train a model.

    Attributes:
        index: in [0, `world_size`).
        world_size: number of processes.
    """

    index: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.world_size < 1 or not 0 <= self.index < self.world_size:
            raise InvalidArgumentError(
                f"`rank` must be in [0, world_size); got {self.index} of {self.world_size}"
            )


def given_rank(rank: Any, world_size: Any) -> Rank | None:
    """Return the rank that the user gave; ``None`` if neither argument was given.

    Raises:
        InvalidArgumentError: if only one was given, or a value is not an int in range.
    """
    if rank is None and world_size is None:
        return None
    for name, value in (("rank", rank), ("world_size", world_size)):
        # A bool is an int of Python, and no rank.
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgumentError(
                f"`{name}` must be an int, or `rank` and `world_size` both None; got {value!r}"
            )
    return Rank(rank, world_size)


def rank_of_environment() -> Rank:
    """Return the rank that a launcher such as torchrun set in RANK and WORLD_SIZE.

    Raises:
        InvalidArgumentError: if a value is not an int in range.
    """
    world_size = os.environ.get("WORLD_SIZE")
    rank = os.environ.get("RANK")
    if rank is None or world_size is None:
        return Rank()
    try:
        return Rank(int(rank), int(world_size))
    except ValueError as error:
        raise InvalidArgumentError(
            "the environment variables RANK and WORLD_SIZE must be ints, RANK in [0, WORLD_SIZE); "
            f"got {rank!r} and {world_size!r}"
        ) from error
