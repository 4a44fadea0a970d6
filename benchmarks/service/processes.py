"""What the kernel tells about processes: their children, and the memory they hold."""

import math
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_SAMPLING_SECONDS = 0.1


class Memory(NamedTuple):
    """Peaks in MB, of one process or added up over several.

    Attributes:
        own: resident, without pages of shared memory.
        anonymous: of these, those that no file backs: without code and libraries.
        shared: resident pages of shared memory.
    """

    own: float = 0.0
    anonymous: float = 0.0
    shared: float = 0.0


UNKNOWN = Memory()


def children(pid: int) -> list[int]:
    """The processes that `pid` started and that live."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:  # it is gone, or this is not Linux
        return []


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time that the processes have used together; nan where it is unknown.

    Linux has a CPU clock for each process; its number is computed as clock_getcpuclockid(3) does.
    """
    try:
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)
    except OSError:
        return math.nan


def wait_until_gone(pids: list[int], seconds: float) -> None:
    """Waits for processes that are not children of this one, so that they disturb no one after.

    Raises:
        TimeoutError: one lives on.
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
    """Watches the memory of groups of processes while it is entered; knows nothing without /proc.

    Args:
        groups: processes, by the name of their group.
    """

    def __init__(self, groups: dict[str, list[int]]) -> None:
        self._groups = groups
        self._peaks: dict[int, Memory] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def of(self, group: str) -> Memory:
        """The peaks of a group's processes, added up."""
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
                    so_far = self._peaks.get(pid, now)
                    self._peaks[pid] = Memory(*map(max, so_far, now))

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
