"""Versions of this process that must match where functions run."""

import platform

import numpy as np

from stoker.service.messages import Versions


def versions() -> Versions:
    """Return this process's Python minor and NumPy major version."""
    python = ".".join(platform.python_version_tuple()[:2])
    return Versions(python, np.__version__.split(".")[0])
