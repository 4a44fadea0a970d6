"""These tests install packages from the index: only `make test-package` runs them."""

from pathlib import Path

import pytest

from tests.named_folders import is_named

FOLDER = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if is_named(config, FOLDER) else True
