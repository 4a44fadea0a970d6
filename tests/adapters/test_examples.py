"""The examples that need a framework run as their headers say."""

from pathlib import Path

import pytest

from tests.examples.running import WITH_FRAMEWORKS, run


@pytest.mark.parametrize("path", WITH_FRAMEWORKS, ids=lambda path: path.stem)
def test_example_runs_on_one_machine(path: Path, tmp_path: Path):
    assert run(path, tmp_path)
    assert list(tmp_path.iterdir()) == []
