"""CPU time of the demo and of other programs, which would make its rates misleading."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

BUSY = 0.15
"""Share of the demo's cores that others use, from which its rates are not shown."""

_IDLE, _IOWAIT, _STEAL = 3, 4, 7
"""Fields of the first line of /proc/stat; those after `_STEAL` are part of others."""


@dataclass(frozen=True)
class Usage:
    """CPU use of one run.

    Attributes:
        cpu: CPU seconds of the demo and its processes.
        others: cores that other programs used on average.
    """

    cpu: float
    others: float


@dataclass(frozen=True)
class Cores:
    """Number of cores of the machine, and of those that this process may use."""

    installed: int
    usable: int

    @classmethod
    def of_this_machine(cls) -> "Cores":
        """Return the cores of this machine."""
        installed = os.cpu_count() or 1
        if sys.platform == "linux":
            # A container or taskset may allow fewer cores than the machine has.
            return cls(installed, len(os.sched_getaffinity(0)))
        return cls(installed, installed)

    def are_busy(self, others: float) -> bool:
        """Return whether other programs, which use `others` cores, leave too few for the demo."""
        return self.installed - others < (1 - BUSY) * self.usable


class CpuMeter:
    """Measures the CPU use from its construction to a call of `usage`.

    The CPU time of child processes counts when they have ended.

    Args:
        load_before: load average before the demo began, which is taken for `Usage.others` where
            the system does not tell the CPU time of all processes, as on macOS.
        stat: file with the CPU times.
    """

    def __init__(self, load_before: float, stat: Path = Path("/proc/stat")) -> None:
        self._load_before = load_before
        self._stat = stat
        self._began = time.monotonic()
        self._own = _own_seconds()
        self._all = _busy_seconds(stat)

    def usage(self) -> Usage:
        """Return the CPU use since construction; the child processes must have ended."""
        own = _own_seconds() - self._own
        seconds = time.monotonic() - self._began
        everyone = _busy_seconds(self._stat)
        if everyone is None or self._all is None:
            return Usage(own, self._load_before)
        # The kernel counts processes in ticks: the difference may be below 0.
        return Usage(own, max(0.0, everyone - self._all - own) / max(seconds, 1e-9))


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds(stat: Path) -> float | None:
    """Return the CPU seconds of all processes since boot; None if the system does not tell."""
    try:
        with stat.open() as lines:
            name, *fields = lines.readline().split()
    except OSError:
        return None
    ticks = [int(field) for field in fields[: _STEAL + 1]]
    if name != "cpu" or not any(ticks):  # some sandboxes show zeros
        return None
    busy = sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]
    return busy / os.sysconf("SC_CLK_TCK")
