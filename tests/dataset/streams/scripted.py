"""A clock that a test advances."""

from types import ModuleType, SimpleNamespace

import pytest


class Script:
    """The time that modules see.

    Attributes:
        now: the time in seconds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now = 100.0
        for module in modules:
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))
