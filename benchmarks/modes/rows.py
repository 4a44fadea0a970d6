"""Rows of `bench_modes.py`, as data: what is measured, and the bound of its median."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from harness import Figure, median
from service.elements import (
    ARRAYS,
    BATCHES,
    IMAGES,
    JPEG,
    KILOBYTE_BATCHES,
    KILOBYTES,
    MEGABYTE_BATCHES,
    SCALARS,
)

from modes.measures import (
    Side,
    beside_a_slow_worker,
    epoch_of_ranks,
    first_element,
    resume,
    resume_shuffled,
    throughput,
    trainer_per_element,
)

Pairs = Sequence[tuple[Figure, Figure]]
"""Figures of the first and the second mode, measured one after the other."""


class Bound(NamedTuple):
    """The limit of a median over the pairs.

    Attributes:
        limit: its value.
        of: "ratio" of the second mode to the first (at least), "difference" between them (at
            most), or "share" (at least) and "value" (at most) of the second alone.
    """

    limit: float
    of: Literal["ratio", "difference", "share", "value"]

    def reached(self, pairs: Pairs) -> float:
        """Return the median that the limit is compared with."""
        return median(
            new.value / old.value
            if self.of == "ratio"
            else new.value - old.value * (self.of == "difference")
            for old, new in pairs
        )

    def verdict(self, pairs: Pairs) -> str:
        """Return the bound and whether it holds."""
        at_least = self.of in ("ratio", "share")
        reached = self.reached(pairs)
        holds = reached >= self.limit if at_least else reached <= self.limit
        sign = "≥" if at_least else "≤ +" if self.of == "difference" else "≤"
        return f"{sign}{self.limit:g}: {reached:.3g}, {'yes' if holds else 'no'}"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        title: for the table.
        measure: takes a side and the seconds to measure for.
        bound: of the second mode; None where the figure is only shown.
        workers: the number of worker processes.
        seconds: measuring time relative to other rows.
    """

    title: str
    measure: Callable[[Side, float], Figure]
    bound: Bound | None = None
    workers: int = 2
    seconds: float = 1.0


def at_least(limit: float) -> Bound:
    """Return the bound of the ratio of two rates."""
    return Bound(limit, "ratio")


def at_most_more(limit: float) -> Bound:
    """Return the bound of the difference of two times."""
    return Bound(limit, "difference")


ROWS = {
    "jpeg": Row("JPEG batches, images", partial(throughput, JPEG), at_least(0.95), seconds=4.0),
    "batches": Row("9.6 MB batches", partial(throughput, BATCHES), at_least(0.95), seconds=2.0),
    "batches-1-mib": Row("1 MiB batches", partial(throughput, MEGABYTE_BATCHES), at_least(0.95)),
    "batches-64-kib": Row("64 KiB batches", partial(throughput, KILOBYTE_BATCHES), at_least(0.95)),
    "kilobytes": Row("1 KB elements", partial(throughput, KILOBYTES), at_least(0.9)),
    "scalars": Row("scalars", partial(throughput, SCALARS), at_least(0.8)),
    "arrays": Row("shuffled arrays in batches", partial(throughput, ARRAYS), at_least(0.9)),
    "first": Row("first scalar", partial(first_element, SCALARS), at_most_more(2.0)),
    "first-image": Row("first 150 KB image", partial(first_element, IMAGES), at_most_more(2.0)),
    "turns": Row(
        "trainer's CPU per element of 20 ms, 16 workers",
        trainer_per_element,
        at_most_more(20.0),
        16,
        4.0,
    ),
    "slow-worker": Row(
        "8 waiting workers, one ten times slower",
        beside_a_slow_worker,
        Bound(0.9, "share"),
        8,
        6.0,
    ),
    "ranks": Row("8 ranks, 10^7 shuffled rows", epoch_of_ranks),
    "resume": Row("resume at 10^9: range, map, batch", resume, Bound(50.0, "value")),
    "resume-shuffled": Row(
        "resume at 10^8 behind shuffle(10_000), a row", resume_shuffled, Bound(50.0, "value")
    ),
}
