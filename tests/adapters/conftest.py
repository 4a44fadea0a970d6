"""These tests need PyTorch, JAX and others: `make test-adapters` installs them and runs the tests.

`make test` ignores them even where they are installed; it runs those in `parts`, which need none.
"""

from pathlib import Path

import pytest

from tests.named_folders import is_named

FOLDER = Path(__file__).resolve().parent
ignored: list[Path] = []


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    needs_none = "parts" in {collection_path.name, collection_path.parent.name}
    if needs_none or is_named(config, FOLDER):
        return None
    ignored.append(collection_path)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ignored:
        terminalreporter.write_line("tests/adapters: ignored but for parts; see make test-adapters")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run those of PyTorch first: they fork processes, which is unsafe once JAX has run."""
    items.sort(key=lambda item: not item.path.name.startswith("test_torch"))
