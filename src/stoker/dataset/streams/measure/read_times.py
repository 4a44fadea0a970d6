"""Measurement of the time for which the reader of an iterator waits for elements."""

import time

from stoker.dataset.streams.measure.bottleneck import Pass
from stoker.dataset.streams.measure.sampling import Section
from stoker.dataset.streams.measure.stopwatch import Stopwatch

# See `ReadTimes._estimate`.
_LEAST_LONG_PAUSE = 5e-3


class ReadTimes:
    """Times of the reads of one iterator.

    Its section chooses the reads that are measured. The read before such a one is timed without
    the stages, whose measurement makes a read slower, and so is the pause between the two: the
    reads and pauses before, of which only the sum is known, are assumed to be like these.
    """

    def __init__(self) -> None:
        self._section = Section()
        self._began: float | None = None
        self._ended = 0.0
        """End of the last read that was measured or timed."""
        self._mark = 0.0
        """End of the last measured read."""
        self._timed: float | None = None
        """Seconds of the read that was only timed, if the next one is measured."""
        self._times_next = False
        self._waits = Stopwatch()
        """Runs in reads that are measured or timed."""
        self._longest = 0.0
        """The longest of these reads, in seconds."""
        self._others = 0.0
        """Seconds in and between the others, without long pauses."""
        self._sampled_waits = 0.0
        self._sampled_pauses = 0.0

    def begin(self) -> None:
        """Begin a read that is measured or timed."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now
        if self._timed is not None:
            self._estimate(self._timed, now)
            self._timed = None
        if not self._times_next:
            self._section.enter()
        self._waits.run(1, now)

    def end(self) -> int:
        """End such a read; return the number of reads before the next one."""
        now = self._ended = time.perf_counter()
        seconds = self._waits.run(0, now)
        self._longest = max(self._longest, seconds)
        if self._times_next:
            self._times_next, self._timed = False, seconds
            return 0
        self._mark = now
        distance = self._section.leave()
        self._times_next = distance > 1
        return max(0, distance - 2)

    def times(self, elements: int) -> Pass:
        """Return the times of the reads until now; from any thread.

        Args:
            elements: the number of elements read.
        """
        if self._began is None:
            return Pass(0, 0.0, 0.0)
        now = time.perf_counter()
        elapsed = (now if self._waits.lap(now) else self._ended) - self._began
        sampled = self._sampled_waits + self._sampled_pauses
        fraction = self._sampled_waits / sampled if sampled else 0.0
        waited = self._waits.seconds(now) + fraction * self._others
        return Pass(elements, max(0.0, elapsed), max(0.0, min(elapsed, waited)))

    def _estimate(self, wait: float, now: float) -> None:
        """Estimate what the reads since the last measured one waited.

        Args:
            wait: seconds of the last of them, which was timed.
            now: the time after the pause that followed it.
        """
        pause = now - self._ended
        others = max(0.0, now - self._mark - wait - pause)
        count = self._section.weight - 1
        expected = count * (wait + pause)
        if others > max(_LEAST_LONG_PAUSE, 2 * self._longest, 2 * expected):
            return  # such as a validation: no read measured so far took half as long
        self._others += others
        if expected > 0:
            # One slow read or long pause is not taken for many.
            weight = count * min(1.0, others / expected)
            self._sampled_waits += weight * wait
            self._sampled_pauses += weight * pause
