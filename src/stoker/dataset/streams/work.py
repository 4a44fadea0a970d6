"""Measurements that a stage makes itself: of its function, and of its threads."""

from collections import defaultdict
from dataclasses import dataclass, field
from math import frexp

from stoker.dataset.streams.measure.stopwatch import Stopwatch

# Of a clock that did not advance.
_LEAST = 1e-9


class Durations:
    """Counts durations in buckets that are a quarter of a power of two wide.

    A quantile is therefore exact to about 10 %.
    """

    def __init__(self) -> None:
        # A Counter takes 1 µs more to make, and an epoch makes many.
        self._counts: defaultdict[int, int] = defaultdict(int)

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a duration `count` times."""
        fraction, exponent = frexp(max(seconds, _LEAST))
        bucket = 4 * exponent + int(8 * fraction)
        self._counts[bucket] += count

    def merge(self, other: "Durations") -> None:
        """Add the counts of another histogram."""
        # A copy, because a thread may add a bucket meanwhile.
        for bucket, count in list(other._counts.items()):
            self._counts[bucket] += count

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


@dataclass(slots=True)
class Work:
    """Time in the function of a stream, on its own threads, or in its calls.

    A single thread changes it at a time: the owner of the stream, or threads under a lock.

    Attributes:
        threads: its own threads that compute at the same time; 0 while the reading thread computes.
        includes_inputs: `busy` contains the time in the datasets that its function returned.
        busy: seconds in the function, or of its threads; summed over threads.
        calls: calls of the function.
        sampled: the seconds of `busy` for which `on_core` was measured, without waits for a core.
        on_core: the seconds of `sampled` in which the thread had a core.
        durations: of single calls, where each is measured.
        put_wait: runs while its own threads wait for room, summed over threads.
    """

    threads: int = 0
    includes_inputs: bool = False
    busy: float = 0.0
    calls: int = 0
    sampled: float = 0.0
    on_core: float = 0.0
    durations: Durations = field(default_factory=Durations)
    put_wait: Stopwatch = field(default_factory=Stopwatch)

    def add_call(self, seconds: float, core: tuple[float, float] | None) -> None:
        """Count a call.

        Args:
            seconds: its duration.
            core: the seconds on a core or waiting for a core; None if not measured.
        """
        self.busy += seconds
        self.calls += 1
        self.durations.add(seconds)
        self.add_core(seconds, core)

    def add_core(self, seconds: float, core: tuple[float, float] | None) -> None:
        """Add the time on a core of a call, with the arguments of `add_call`."""
        if core is not None:
            on_core, queued = core
            self.sampled += max(on_core, seconds - queued)
            self.on_core += on_core

    def add(self, other: "Work", weight: int = 1) -> None:
        """Add the times of a stream of the same stage; `threads` becomes the stream's.

        Args:
            other: of the stream.
            weight: the number of streams that the measured stream stands for.
        """
        self.busy += weight * other.busy
        self.calls += weight * other.calls
        self.sampled += other.sampled
        self.on_core += other.on_core
        self.threads = other.threads
        self.includes_inputs = other.includes_inputs
        self.durations.merge(other.durations)
        self.put_wait.add(weight * other.put_wait.seconds())
