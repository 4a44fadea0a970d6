"""Memory, threads and descriptors of processes over time."""

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tests.serving import eventually

YOUNG_SECONDS = 5.0
"""A process that is younger is not counted: it has not allocated what it needs."""

RELEASE_SECONDS = 60.0
"""Time in which idle processes release threads and descriptors."""

SLACK = 1
"""Threads and descriptors that a process may have more than another time."""

GROWN_MEGABYTES = 5.0
"""Growth of the median between the first and the last third that is a leak: in 18 minutes, 282
faults and 43 epochs, no process grew by more than 1.3 MB."""


class Usage(NamedTuple):
    """Resources of a process: memory of its own in MB, threads and descriptors."""

    megabytes: float
    threads: float
    descriptors: float


def usage_of(pid: int) -> Usage | None:
    """Return the usage of a process; ``None`` if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        return Usage(int(fields["RssAnon"].split()[0]) / 1024, int(fields["Threads"]), descriptors)
    except (OSError, KeyError):  # a zombie has no memory
        return None


Processes = Callable[[], Iterable[tuple[str, int]]]
"""Returns role and process id of each process."""


def usage_by_role(processes: Processes) -> dict[str, Usage]:
    """Return the usage of each role whose process runs."""
    found = ((role, usage_of(pid)) for role, pid in processes() if pid)
    return {role: usage for role, usage in found if usage is not None}


def leaks_since(before: dict[str, Usage], processes: Processes) -> list[str]:
    """Return a line for each role with more threads or descriptors than `before`, after a while."""

    def leaks() -> list[str]:
        return [
            f"{role}: {usage.threads:g} threads and {usage.descriptors:g} descriptors when idle; "
            f"before the faults {before[role].threads:g} and {before[role].descriptors:g}"
            for role, usage in usage_by_role(processes).items()
            if usage.threads > before[role].threads + SLACK
            or usage.descriptors > before[role].descriptors + SLACK
        ]

    eventually(lambda: not leaks(), RELEASE_SECONDS)
    return leaks()


class Trend(NamedTuple):
    """The usage of a role over time.

    Attributes:
        early: medians of the first third of the samples.
        late: medians of the last third.
        per_hour: slopes of the lines of least squares.
    """

    early: Usage
    late: Usage
    per_hour: Usage


def grown(trends: dict[str, Trend]) -> list[str]:
    """Return a line for each role that uses clearly more late than early."""
    return [
        f"{role} has grown from {early} to {late}"
        for role, (early, late, _) in trends.items()
        if late.megabytes > early.megabytes + GROWN_MEGABYTES
        or late.threads > early.threads + SLACK
        or late.descriptors > early.descriptors + 2 * SLACK
    ]


class Growth:
    """Samples the usage of processes every second while it is entered.

    Args:
        processes: returns role and process id of each process.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._samples: dict[str, list[tuple[float, Usage]]] = defaultdict(list)
        self._first_seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "Growth":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def trends(self) -> dict[str, Trend]:
        """Return the trend of each role with enough samples."""
        return {
            role: Trend(
                _medians(samples[: len(samples) // 3]),
                _medians(samples[-(len(samples) // 3) :]),
                _slopes(samples),
            )
            for role, samples in sorted(self._samples.items())
            if len(samples) >= 9
        }

    def _sample(self) -> None:
        while not self._stop.wait(1.0):
            now = time.monotonic()
            for role, pid in self._processes():
                usage = usage_of(pid) if pid else None
                if usage is None:
                    continue
                if now - self._first_seen.setdefault(pid, now) >= YOUNG_SECONDS:
                    self._samples[role].append((now, usage))


def _medians(samples: list[tuple[float, Usage]]) -> Usage:
    return Usage(
        *(statistics.median(values) for values in zip(*(u for _, u in samples), strict=True))
    )


def _slopes(samples: list[tuple[float, Usage]]) -> Usage:
    hours = [(when - samples[0][0]) / 3600 for when, _ in samples]
    columns = zip(*(usage for _, usage in samples), strict=True)
    return Usage(*(statistics.linear_regression(hours, values).slope for values in columns))
