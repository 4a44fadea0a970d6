"""Sums over the measured calls of streams."""

from typing import Any

from stoker.dataset.streams.measure.durations import Durations
from stoker.elements.sizes import element_bytes


class Totals:
    """Sums over calls; a measured one counts for others that were not.

    Attributes:
        elements: elements yielded.
        sized: elements of which the size was asked.
        sized_bytes: about the bytes of these.
        seconds: in the calls.
        judged: seconds for which `on_core` was measured, without waits for a core.
        on_core: the part of `judged` in which the thread had a core.
        durations: seconds per element, without those in calls of other streams.
        occupancy: sum of samples of the fraction of the buffer in use.
        occupancy_samples: the number of these.
        sampled: some calls were not measured: the sums are estimates.
    """

    __slots__ = (
        "durations",
        "elements",
        "judged",
        "occupancy",
        "occupancy_samples",
        "on_core",
        "sampled",
        "seconds",
        "sized",
        "sized_bytes",
    )

    def __init__(self) -> None:
        self.elements = 0
        self.sized = 0
        self.sized_bytes = 0
        self.seconds = 0.0
        self.judged = 0.0
        self.on_core = 0.0
        self.durations = Durations()
        self.occupancy = 0.0
        self.occupancy_samples = 0
        self.sampled = False

    def ask_size(self, chunk: list[Any]) -> None:
        """Ask the size of the first of some elements."""
        if type(chunk) is list:  # not row numbers
            self.sized += 1
            self.sized_bytes += element_bytes(chunk[0])

    def add(self, other: "Totals", weight: int = 1) -> None:
        """Add the sums of a stream, which counts for `weight` streams."""
        self.elements += weight * other.elements
        self.sized += other.sized
        self.sized_bytes += other.sized_bytes
        self.seconds += weight * other.seconds
        self.judged += other.judged
        self.on_core += other.on_core
        self.durations.merge(other.durations)
        self.occupancy += other.occupancy
        self.occupancy_samples += other.occupancy_samples
        self.sampled |= other.sampled or weight > 1
