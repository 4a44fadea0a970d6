"""These tests need PyTorch, JAX and others: `make test-adapters` installs them and runs the tests.

`make test` ignores them even where they are installed; it runs those in `parts`, which need none.
"""

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
ignored: list[Path] = []


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    needs_none = "parts" in {collection_path.name, collection_path.parent.name}
    if needs_none or any(map(_is_here, _paths(config))):
        return None
    ignored.append(collection_path)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ignored:
        terminalreporter.write_line("tests/adapters: ignored but for parts; see make test-adapters")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run those of PyTorch first: they fork processes, which is unsafe once JAX has run."""
    items.sort(key=lambda item: not item.path.name.startswith("test_torch"))


def _paths(config: pytest.Config) -> list[Path]:
    """Return the files and folders that were named, without the names of tests in them."""
    start = config.invocation_params.dir
    return [(start / argument.partition("::")[0]).resolve() for argument in config.args]


def _is_here(path: Path) -> bool:
    return path.is_relative_to(FOLDER)
