"""A clock that a test advances."""

import random
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stoker.dataset.streams.measure import read_times, recording, sampling, stopwatch
from stoker.dataset.threads import inline


class Script:
    """The time that modules see.

    Attributes:
        now: the time in seconds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now = 100.0
        for module in modules:
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def taking(self, seconds: float) -> Callable[[Any], Any]:
        """Return a function that takes a time, and returns its argument."""

        def take(x: Any) -> Any:
            self.now += seconds
            return x

        return take


def script_of_stages(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Return the time by which iterators and the stages in their threads are measured."""
    monkeypatch.setattr(sampling, "_random", random.Random(5))
    return Script(monkeypatch, recording, read_times, sampling, stopwatch, inline)
