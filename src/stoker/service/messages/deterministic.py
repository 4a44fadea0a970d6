"""DETERMINISTIC: tasks that compute the positions of an epoch that clients ask for."""

import msgspec

from stoker.service.messages.sharing import ByPosition
from stoker.service.messages.tasks import AnySharing, TaskMode


class Draws(msgspec.Struct, frozen=True):
    """The random draws of an epoch: those of the same pipeline in the trainer's process.

    `seed` replaces the seeds that the user did not give; with `seed_given` it is the user's, of
    `Options.seed`. `salts` are those of `DrawnSeeds`. The first node of the dataset has the number
    `first_number` in the trainer's tree, and the others follow.
    """

    seed: int
    seed_given: bool = False
    salts: list[int] = []
    first_number: int = 0


class PositionTask(TaskMode, frozen=True, tag=True, kw_only=True):
    """A task that yields the positions that clients ask for, in [0, `length`).

    `seed_given` and `first_number` as in `Draws`; `TaskStart` has the seed and the salts. The
    dataset's own `Options.seed` does not count.
    """

    length: int
    seed_given: bool = False
    first_number: int = 0
    sharing: AnySharing = ByPosition()
