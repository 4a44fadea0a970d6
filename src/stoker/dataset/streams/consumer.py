"""Measurement of the time for which a consumer waits for elements."""

import time

from stoker.dataset.bottleneck import Pass
from stoker.dataset.streams.gauge import WINDOW_CALLS
from stoker.dataset.streams.meters import Meters

# Measuring a read costs 1 to 3 us. Reads that follow each other faster than this are sampled.
_FAST_SECONDS = 50e-6

# Reads in a row after which sampling may begin.
_FIRST_READS = 16

# Reads between two samples, which doubles up to the second number. If the pipeline or the trainer
# becomes slow between them, it is noticed at the next sample.
_FIRST_RUN = 8
_LONGEST_RUN = 1024


class Consumer:
    """Times of the reads of one iterator.

    Args:
        meters: of the pipeline, which measure with the same reads.
    """

    def __init__(self, meters: Meters) -> None:
        self._clock = meters.clock
        self._clock.has_consumer = True
        self._began: float | None = None
        self._ended = 0.0
        self._waited = 0.0
        self._unknown = 0.0
        """Seconds between samples in which something became slow."""
        self._sampling = False
        self._run = _FIRST_RUN
        self._skipped = 0
        """Reads not measured before the next one."""
        self._samples = 0
        """Measured reads that follow others which were not, and the seconds waited in these."""
        self._sample_waits = 0.0
        self._estimated = 0
        """Reads that were not measured, and the seconds that they and the trainer took."""
        self._estimated_seconds = 0.0
        self._mark = 0.0
        self._reads = 0
        """Reads since `_mark`."""
        self._left = _FIRST_READS
        """Reads to be measured before it is decided how to go on."""

    def begin(self) -> float:
        """Begin a measured read; return the time."""
        now = time.perf_counter()
        if self._began is None:
            self._began = self._mark = now
        elif self._skipped:
            seconds = now - self._ended
            if seconds < self._skipped * _FAST_SECONDS:
                self._estimated += self._skipped
                self._estimated_seconds += seconds
            else:
                self._unknown += seconds
        elif not self._sampling:
            self._clock.idle += now - self._ended
        return now

    def end(self, start: float) -> int:
        """End a measured read; return the number of reads that need not be measured after it.

        Args:
            start: the result of `begin`.
        """
        now = time.perf_counter()
        self._waited += now - start
        if self._skipped:
            self._samples += 1
            self._sample_waits += now - start
        self._ended = self._clock.now = now
        self._reads += 1 + self._skipped
        self._skipped = 0
        if now >= self._clock.next_interval and self._clock.begin_interval(now):
            self._mark, self._reads, self._left = now, 0, WINDOW_CALLS
        else:
            self._left -= 1
            if not self._left:
                self._decide(now)
        return self._skipped

    def times(self, elements: int) -> Pass:
        """Return the times of the reads until now.

        Args:
            elements: the number of elements read.
        """
        if self._began is None:
            return Pass(0, 0.0, 0.0)
        elapsed = max(0.0, self._ended - self._began)
        mean = self._sample_waits / max(1, self._samples)
        waited = self._waited + min(self._estimated * mean, self._estimated_seconds)
        known = elapsed - self._unknown
        if known > 0:
            waited *= elapsed / known
        return Pass(elements, elapsed, min(waited, elapsed))

    def _decide(self, now: float) -> None:
        self._sampling = now - self._mark < self._reads * _FAST_SECONDS
        if self._sampling:
            self._skipped, self._left = self._run, 1
            self._run = min(2 * self._run, _LONGEST_RUN)
        else:
            self._run, self._left = _FIRST_RUN, _FIRST_READS
        self._mark, self._reads = now, 0
