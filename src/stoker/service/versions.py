"""Versions of this process: of stoker, and those that must match where functions run."""

import platform
from importlib.metadata import version

import numpy as np

from stoker.service.messages import Versions


def versions() -> Versions:
    """Return this process's Python minor and NumPy major version."""
    python = ".".join(platform.python_version_tuple()[:2])
    return Versions(python, np.__version__.split(".")[0])


def stoker_version() -> str:
    """Return the version of the installed package, as ``stoker --version`` prints it."""
    return version("stoker")
