"""The versions that decide whether a pickled function runs elsewhere."""

import platform

import numpy as np

from stoker.service.messages import Versions


def versions() -> Versions:
    """This process's: Python's minor and NumPy's major version."""
    python = ".".join(platform.python_version_tuple()[:2])
    return Versions(python, np.__version__.split(".")[0])
