"""Facts about processes from the kernel: their children, their CPU time and their memory."""

import math
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_SAMPLING_SECONDS = 0.1


class Memory(NamedTuple):
    """Peak memory in MB, of one process or added up over several.

    Attributes:
        own: resident pages except shared memory.
        anonymous: those of `own` that no file backs, without code and libraries.
        shared: resident pages of shared memory.
    """

    own: float = 0.0
    anonymous: float = 0.0
    shared: float = 0.0


UNKNOWN = Memory()


def descendants(pid: int) -> list[int]:
    """Return the living child processes of `pid`, and theirs."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        found = [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:  # it has ended, or this is not Linux
        return []
    return found + [each for child in found for each in descendants(child)]


def worker_processes(pid: int) -> list[int]:
    """Return the descendants of `pid` without children: not the process that forks workers."""
    return [each for each in descendants(pid) if not descendants(each)]


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time that the processes have used together; nan where it is unknown.

    Linux has a CPU clock for each process; its number is computed as clock_getcpuclockid(3) does.
    """
    try:
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)
    except OSError:
        return math.nan


def wait_until_ended(pids: list[int], seconds: float) -> None:
    """Wait until processes have ended that are not children of this one.

    So they do not disturb the next measurement.

    Raises:
        TimeoutError: if one still runs after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while any(_runs(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise TimeoutError(f"one of processes {pids} did not end within {seconds:g} s")
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Peaks:
    """Samples the memory of groups of processes while it is entered; all zero without /proc.

    Args:
        groups: process ids by the name of their group.
    """

    def __init__(self, groups: dict[str, list[int]]) -> None:
        self._groups = groups
        self._peaks: dict[int, Memory] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def of(self, group: str) -> Memory:
        """Return the peaks of a group's processes, added up."""
        peaks = [self._peaks.get(pid, Memory()) for pid in self._groups[group]]
        return (
            Memory(*(sum(figures) for figures in zip(*peaks, strict=True))) if peaks else Memory()
        )

    def _watch(self) -> None:
        pids = [pid for group in self._groups.values() for pid in group]
        while not self._ended.wait(_SAMPLING_SECONDS):
            for pid in pids:
                with suppress(OSError, KeyError):
                    now = _memory_of(pid)
                    before = self._peaks.get(pid, now)
                    self._peaks[pid] = Memory(*map(max, before, now))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()


def _memory_of(pid: int) -> Memory:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = dict(line.split(":", 1) for line in lines if line.startswith("Rss"))
    anonymous, file, shared = (
        int(sizes[f"Rss{kind}"].split()[0]) * 1024 / 1e6 for kind in ("Anon", "File", "Shmem")
    )
    return Memory(anonymous + file, anonymous, shared)
