"""Histogram of durations."""

from math import frexp

# Of a clock that did not advance.
_LEAST = 1e-9


class Durations:
    """Counts durations in buckets that are a quarter of a power of two wide.

    A quantile is therefore exact to about 10 %.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a duration `count` times."""
        fraction, exponent = frexp(max(seconds, _LEAST))
        bucket = 4 * exponent + int(8 * fraction)
        self._counts[bucket] = self._counts.get(bucket, 0) + count

    def merge(self, other: "Durations") -> None:
        """Add the counts of another histogram."""
        for bucket, count in list(other._counts.items()):
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    def quantile(self, fraction: float) -> float:
        """Return the duration that this fraction does not exceed; 0.0 without any."""
        counts = sorted(self._counts.items())
        left = fraction * sum(count for _, count in counts)
        for bucket, count in counts:
            left -= count
            if left <= 0:
                exponent, quarter = divmod(bucket - 4, 4)
                return float((4.5 + quarter) / 8 * 2.0**exponent)
        return 0.0
