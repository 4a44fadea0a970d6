"""These tests need PyTorch, JAX and others: `make test-adapters` installs them and runs the tests.

`make test` ignores them even where they are installed; it runs those in `parts`, which need none.
"""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = any("adapters" in argument for argument in config.invocation_params.args)
    needs_none = collection_path.name == "parts" or collection_path.parent.name == "parts"
    return None if named or needs_none else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run those of PyTorch first: they fork processes, which is unsafe once JAX has run."""
    items.sort(key=lambda item: not item.path.name.startswith("test_torch"))
