"""Detection of leaked threads, file descriptors, shared memory segments and processes.

Compared before and after every test by the `no_leaks` fixture of `conftest.py`. There is no list
of exceptions for libraries: gRPC, measured, releases its threads and descriptors when its last
channel and server are closed. Only multiprocessing's resource tracker, one process for a whole
session, is ignored. Only what this run made counts: its temporary files are in a folder of its own,
and a file in /dev/shm that only processes outside of this run use is another program's. Each test
process of pytest-xdist is a run of its own. A file in /dev/shm that no process uses any more counts
in all of them, as nothing tells who made it.
"""

import gc
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from pathlib import Path

DEADLINE = 20.0
"""Seconds for resources to be released: a closed connection's thread needs a moment, and some
seconds where more processes run than there are cores."""

SEGMENT_PREFIX = "stoker"
"""Name prefix of stoker's temporary files; in /dev/shm every new file of this run counts."""

SHARED_MEMORY = Path("/dev/shm")

RUN_VARIABLE = "TEST_RUN_OF_STOKER"
"""Environment variable by which the processes of this run are recognized."""


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
    while found := _of_this_run(open_resources(), before).added_since(before):
        gc.collect()
        if time.monotonic() > end:
            return found
        time.sleep(pause)
        pause = min(0.1, pause * 2)
    return []


def _of_this_run(now: OpenResources, before: OpenResources) -> OpenResources:
    """Return `now` without the new segments of other programs; this reads /proc only if needed."""
    new = [name for name in now.segments.keys() - before.segments.keys() if _in_shared(name)]
    foreign = {name for name in new if _is_foreign(Path(name))}
    own = {name: text for name, text in now.segments.items() if name not in foreign}
    return replace(now, segments=own)


def _in_shared(name: str) -> bool:
    return Path(name).is_relative_to(SHARED_MEMORY)


def _is_foreign(path: Path) -> bool:
    """Return whether another user owns a file, or processes use it and none is of this run."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False  # removed meanwhile: the next look at the resources does not find it
    if found.st_uid != os.getuid():
        return True
    users = _users_of(str(path))
    return bool(users) and not users & _processes_of_this_run()


def _users_of(path: str) -> set[int]:
    """Return the processes that have a file open or mapped."""
    users = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mapped = path in (process / "maps").read_text()
            opened = any(str(link.readlink()) == path for link in (process / "fd").iterdir())
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if mapped or opened:
            users.add(int(process.name))
    return users


def _processes_of_this_run() -> set[int]:
    """Return the descendants of this process, and processes that have its `RUN_VARIABLE`."""
    parents, found = {}, {os.getpid()}
    mark = f"{RUN_VARIABLE}={os.environ[RUN_VARIABLE]}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int(
                (process / "stat").read_text().rpartition(")")[2].split()[1]
            )
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
        except OSError:
            continue
    while children := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= children
    return found


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
    shared = SHARED_MEMORY
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
