"""Tests that need a framework are ignored unless they are named by their path."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.adapters import conftest

ROOT = Path(__file__).resolve().parents[3]
TEST = ROOT / "tests" / "adapters" / "test_torch_loader.py"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["tests/adapters"], True),
        (["tests/wire", "tests/adapters/test_torch_loader.py::test_a[x::y]"], True),
        (["tests"], False),
        (["tests/wire"], False),
    ],
)
def test_only_paths_name_tests(monkeypatch, arguments, named):
    monkeypatch.setattr(conftest, "ignored", [])
    options = ["-k", "not adapters", *arguments]
    parameters = SimpleNamespace(dir=ROOT, args=options)
    config = cast("Any", SimpleNamespace(args=arguments, invocation_params=parameters))
    assert conftest.pytest_ignore_collect(TEST, config) == (None if named else True)
    part = TEST.parent / "parts" / "test_epochs.py"
    assert conftest.pytest_ignore_collect(part, config) is None
    assert conftest.ignored == ([] if named else [TEST])
