"""Folders of tests that run only when named, by the target of make that installs for them."""

from pathlib import Path

import pytest


def is_named(config: pytest.Config, folder: Path) -> bool:
    """Return whether the command line names a folder, or a file or a test in it."""
    start = config.invocation_params.dir
    named = [(start / argument.partition("::")[0]).resolve() for argument in config.args]
    return any(path.is_relative_to(folder) for path in named)
