"""Phrases of the sentences that name a bottleneck."""

from stoker.dataset.streams.measure import bottleneck
from stoker.service.client.measure.reading import Reading


def percent(part: float, whole: float) -> str:
    """Return a fraction of at most 1 as "87%"."""
    return f"{min(1.0, part / whole) if whole > 0 else 0.0:.0%}"


def waited_text(reading: Reading) -> str:
    """Return how long the trainer waited, as a clause."""
    return bottleneck.waited_text(reading.read or reading.own_read)


def rate_text(nbytes: int, seconds: float) -> str:
    """Return a rate in bytes per second, such as "2.0 MB/s"."""
    rate = nbytes / seconds if seconds > 0 else 0.0
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if rate >= scale:
            return f"{rate / scale:.1f} {unit}/s"
    return f"{rate / 1e3:.1f} kB/s"
