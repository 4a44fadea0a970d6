"""Identity and load of the host of this process, and versions that functions depend on."""

import os
import platform
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stoker.service.messages import Versions


class HostLoad(NamedTuple):
    """Load of a host.

    Attributes:
        average: the number of threads that ran or were ready to run, over the last minute.
        processors: of the host.
    """

    average: float = 0.0
    processors: int = 1

    @property
    def is_high(self) -> bool:
        """True if threads had to wait for a processor."""
        return self.average > self.processors


def load() -> HostLoad:
    """Return the load of this host; 0 if the system does not know."""
    try:
        return HostLoad(os.getloadavg()[0], os.cpu_count() or 1)
    except (OSError, AttributeError):  # not all systems have load averages
        return HostLoad()


def host_id() -> str:
    """Return an id of the running kernel, the same in all containers of a host; "" if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""


def versions() -> Versions:
    """Return this process's Python minor and NumPy major version."""
    python = ".".join(platform.python_version_tuple()[:2])
    return Versions(python, np.__version__.split(".")[0])
