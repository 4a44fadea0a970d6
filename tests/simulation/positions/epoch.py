"""The dataset of simulated deterministic epochs: its elements are their positions."""

import random
from dataclasses import dataclass

from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.dataset.tree.splits import ENDLESS

STREAM = 1
"""The stream of the calls of the only user function."""

CHUNK_POSITIONS = 7
"""Most positions of a chunk that a pipeline computes."""

ERROR_BYTES = 5
"""Size of an error."""

SLOW_FACTOR = 20
"""The time of a slow element, in times of a typical one."""


@dataclass(frozen=True)
class EpochPlan:
    """An epoch.

    Attributes:
        length: the number of its positions.
        stop: of an endless epoch, the position before which consumers stop to read.
        seed: that of the draws of its clients, which all tasks must have.
        sizes: element k takes ``sizes[k % len(sizes)]`` bytes.
        errors: positions at which the user function fails.
        poisoned: positions at which the user function ends the process.
        slow: every such position takes `SLOW_FACTOR` times as long; 0: none does.
        opening: about how many seconds it takes to open the pipeline.
        ahead: the number of positions that the pipeline reads before it computes them.
    """

    length: int
    stop: int
    seed: int
    sizes: tuple[int, ...] = (10,)
    errors: frozenset[int] = frozenset()
    poisoned: frozenset[int] = frozenset()
    slow: int = 0
    opening: float = 0.0
    ahead: int = 1

    def nbytes(self, position: int) -> int:
        """Return the size of an element, or of the error in its place."""
        fails = position in self.errors or position in self.poisoned
        return ERROR_BYTES if fails else self.sizes[position % len(self.sizes)]

    @property
    def largest(self) -> int:
        """The size of the largest element."""
        return max(ERROR_BYTES, *self.sizes)

    def weight(self, position: int) -> int:
        """Return the time of an element, in times of a typical one."""
        return SLOW_FACTOR if self.slow and position % self.slow == self.slow - 1 else 1

    @property
    def weights(self) -> int:
        """The time of all elements that are read, in times of a typical one."""
        return self.stop + (SLOW_FACTOR - 1) * (self.stop // self.slow if self.slow else 0)

    @property
    def is_endless(self) -> bool:
        """True if it has no end."""
        return self.length == ENDLESS


def calls_of(positions: list[int]) -> list[CallRange]:
    """Return the calls of the user function for these positions."""
    return [CallRange(STREAM, position, position + 1) for position in positions]


def draw_epoch(rng: random.Random) -> EpochPlan:
    """Return an epoch."""
    stop = rng.choice([0, 1, 2, 7]) if rng.random() < 0.2 else rng.randint(10, 300)
    sizes = rng.choice([(10,), (10,), (1, 5, 40), (1,), (10, 10, 10, 400), (1000,)])
    errors = frozenset(k for k in range(stop) if rng.random() < 0.02)
    deadly = rng.choices(range(stop), k=rng.choice([1, 1, 2])) if stop else []
    return EpochPlan(
        ENDLESS if stop and rng.random() < 0.1 else stop,
        stop,
        rng.getrandbits(32),
        sizes,
        errors,
        frozenset(deadly) if rng.random() < 0.1 else frozenset(),
        slow=rng.choice([0, 0, 10, 100]),
        opening=rng.choice([0.0, 0.0, 0.2, 2.0]),
        ahead=rng.choice([1, 1, 8, 64]),
    )
