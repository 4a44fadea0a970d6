"""Facts about this machine and process, and the checks that need no peer."""

import importlib.util
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stoker.cli.doctor.findings import Finding, Level, finding
from stoker.service import messages as m
from stoker.service.dispatcher.iterations.assignment import TASKS_PER_CLIENT
from stoker.service.process.host import host_id, versions
from stoker.version import VERSION
from stoker.wire import frames as f

USUAL_OPEN_FILES = 1024
"""The usual soft limit of Linux; libraries expect at least that."""

OWN_FILES = 100
"""Descriptors that a trainer has open without stoker: files of data, logs, sockets of its ranks."""

FILES_PER_WORKER = 5
"""A socket, and with shared memory up to four segments, by default."""

SMALL_DEV_SHM = 128 << 20
"""Containers get 64 MiB by default."""


def _limit_of_open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def _size_of_dev_shm() -> int | None:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:  # macOS has none
        return None
    # The whole size, since the free part changes with each batch.
    return found.f_blocks * found.f_frsize


def _installed_modules() -> frozenset[str]:
    return frozenset(x for x in ("grpc", "torch") if importlib.util.find_spec(x) is not None)


@dataclass(frozen=True)
class Machine:
    """Facts that the checks compare with those of the servers; by default of this machine.

    Attributes:
        stoker: version of the package.
        versions: those that must match where functions run.
        protocol: first and last version of the control protocol.
        data_protocol: first and last version of the data protocol.
        host: identifies the running kernel; "" if unknown.
        open_files: soft limit of this process.
        dev_shm_bytes: size of the file system at /dev/shm; ``None`` if there is none.
        modules: those of "grpc" and "torch" that are installed.
        clock: returns the time of day, in seconds since 1970.
    """

    stoker: str = VERSION
    versions: m.Versions = field(default_factory=versions)
    protocol: tuple[int, int] = (m.PROTOCOL_MIN, m.PROTOCOL_MAX)
    data_protocol: tuple[int, int] = (f.PROTOCOL_MIN, f.PROTOCOL_MAX)
    host: str = field(default_factory=host_id)
    open_files: int = field(default_factory=_limit_of_open_files)
    dev_shm_bytes: int | None = field(default_factory=_size_of_dev_shm)
    modules: frozenset[str] = field(default_factory=_installed_modules)
    clock: Callable[[], float] = time.time


def check_machine(machine: Machine, workers: int) -> list[Finding]:
    """Return the findings about this machine.

    Args:
        machine: its facts.
        workers: the number of workers that a trainer here would read.
    """
    return [*_check_open_files(machine, workers), *_check_dev_shm(machine)]


def _check_open_files(machine: Machine, workers: int) -> Iterator[Finding]:
    limit = machine.open_files
    # A client has at most `TASKS_PER_CLIENT` tasks, and so at most as many connections.
    needed = OWN_FILES + FILES_PER_WORKER * min(workers, TASKS_PER_CLIENT)
    if limit < max(needed, USUAL_OPEN_FILES):
        level = None if limit >= needed else Level.FAULT
        values = {"limit": limit, "workers": workers, "needed": needed, "usual": USUAL_OPEN_FILES}
        yield finding("machine", "few-open-files", "this machine", level, **values)


def _check_dev_shm(machine: Machine) -> Iterator[Finding]:
    """Check /dev/shm for PyTorch; stoker's own shared memory is not there."""
    size = machine.dev_shm_bytes
    if "torch" in machine.modules and size is not None and size < SMALL_DEV_SHM:
        yield finding("machine", "small-dev-shm", "this machine", megabytes=size / (1 << 20))
