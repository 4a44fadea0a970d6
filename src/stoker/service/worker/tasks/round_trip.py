"""Time from the announcement of splits to its answer, as a worker measures it."""

# A split is announced two round trips before reading: begun splits are lost with the worker, so a
# smaller number is better. (docs/decisions/040)
LOOKAHEAD_SECONDS = 0.05
"""Shortest time between the announcement of a split and its reading. The round trip takes 1 to 2 ms
on an idle worker, up to 20 ms if the pipeline holds the GIL. Not longer, because begun splits are
lost with the worker."""

SHRINKING = 8
"""A shorter round trip moves the estimate by this part of the difference."""


class RoundTrip:
    """Estimate of the round trip to the dispatcher, shared by the tasks of a worker.

    A journal in an object store adds 50 to 300 ms. The estimate grows to the shorter of the last
    two measurements, so that one long wait, as for a dispatcher that was stopped for a moment, has
    no effect; it shrinks slowly, since announcements wait for zero to two commits.

    Attributes:
        seconds: the estimate, 0 at first.

    Example:
        >>> trip = RoundTrip()
        >>> for seconds in (0.2, 0.2, 30.0, 0.2):
        ...     trip.add(seconds)
        >>> trip.seconds, trip.lookahead
        (0.2, 0.4)
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._previous = 0.0

    def add(self, seconds: float) -> None:
        """Update the estimate by a measurement."""
        shrunk = self.seconds - max(0.0, self.seconds - seconds) / SHRINKING
        self.seconds = max(shrunk, min(seconds, self._previous))
        self._previous = seconds

    @property
    def lookahead(self) -> float:
        """Seconds between the announcement of a split and its reading: two round trips."""
        return max(LOOKAHEAD_SECONDS, 2 * self.seconds)
