"""Detection of leaked threads, file descriptors, shared memory segments and processes.

Compared before and after every test by the `no_leaks` fixture of `conftest.py`. There is no list
of exceptions for libraries: gRPC, measured, releases its threads and descriptors when its last
channel and server are closed. Only multiprocessing's resource tracker, one process for a whole
session, is ignored.
"""

import gc
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

DEADLINE = 5.0
"""Seconds for resources to be released: a closed connection's thread needs a moment."""

SEGMENT_PREFIX = "stoker"
"""Name prefix of stoker's temporary files; in /dev/shm every new file counts."""


@dataclass(frozen=True)
class OpenResources:
    """Open threads, descriptors, segments and children, each by identity with a description."""

    threads: dict[int, str]
    descriptors: dict[tuple[int, str], str]
    segments: dict[str, str]
    children: dict[int, str]

    def added_since(self, before: "OpenResources") -> list[str]:
        """Return one line for each resource that is here and not in `before`."""
        found = []
        parts = {
            "thread": "threads",
            "descriptor": "descriptors",
            "segment": "segments",
            "child": "children",
        }
        for word, part in parts.items():
            mine, theirs = getattr(self, part), getattr(before, part)
            found += [f"{word}: {mine[key]}" for key in mine.keys() - theirs.keys()]
        return sorted(found)


def open_resources() -> OpenResources:
    """Return the resources that this process holds now."""
    return OpenResources(_threads(), _descriptors(), _segments(), _children())


def leaks_since(before: OpenResources, deadline: float = DEADLINE) -> list[str]:
    """Return descriptions of new resources that still exist after `deadline` seconds."""
    end = time.monotonic() + deadline
    pause = 0.001
    while found := open_resources().added_since(before):
        gc.collect()
        if time.monotonic() > end:
            return found
        time.sleep(pause)
        pause = min(0.1, pause * 2)
    return []


def _threads() -> dict[int, str]:
    return {
        id(thread): f"{thread.name}{' (daemon)' if thread.daemon else ''}{_current_place(thread)}"
        for thread in threading.enumerate()
        if thread.is_alive()
    }


def _current_place(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or -1)
    if frame is None:
        return ""
    return f", now in {frame.f_code.co_qualname} at {frame.f_code.co_filename}:{frame.f_lineno}"


def _descriptors() -> dict[tuple[int, str], str]:
    found = {}
    directory = Path("/proc/self/fd")
    links = list(directory.iterdir()) if directory.exists() else []
    for link in links:
        try:
            target = str(link.readlink())
        except OSError:
            continue
        found[int(link.name), target] = f"{link.name} -> {target}"
    tracker = resource_tracker._resource_tracker._fd  # type: ignore[attr-defined]
    return {key: text for key, text in found.items() if key[0] != tracker}


def _segments() -> dict[str, str]:
    shared = Path("/dev/shm")
    found = [str(path) for path in shared.iterdir()] if shared.exists() else []
    # stoker makes no semaphores; those of multiprocessing are another program's on this machine.
    found = [path for path in found if not path.startswith(f"{shared}/sem.")]
    found += [str(path) for path in Path(tempfile.gettempdir()).glob(f"{SEGMENT_PREFIX}*")]
    return {name: name for name in found}


def _children() -> dict[int, str]:
    found = {}
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            pids = task.read_text().split()
        except OSError:
            continue
        for pid in map(int, pids):
            found[pid] = f"{pid}: {_command(pid)}"
    found.pop(resource_tracker._resource_tracker._pid, None)  # type: ignore[attr-defined]
    return found


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "exited"
    command = " ".join(word.decode(errors="replace") for word in words).strip()
    return command[:200] or "a zombie process"
