"""Choice of the calls that are measured, on a scripted clock."""

import random
from typing import Any

import pytest

from stoker.dataset.streams.measure import sampling as module
from stoker.dataset.streams.measure.sampling import Section
from stoker.dataset.streams.stream import Stream
from tests.dataset.streams.scripted import Script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.setattr(module, "_random", random.Random(5))
    return Script(monkeypatch, module)


class Steps(Stream):
    """Takes a time for each element; counts the calls that are measured."""

    def __init__(self, script: Script, seconds: float) -> None:
        self._script = script
        self.seconds = seconds
        self.weights: list[int] = []

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        section = module._threads.section
        if section is not None:
            self.weights.append(section.weight)
        self._script.now += self.seconds
        return [1]


def read(section: Section, steps: Steps, count: int) -> None:
    for _ in range(count):
        section.read(steps, 1, 1)


def test_slow_calls_are_all_measured(script: Script) -> None:
    section, steps = Section(), Steps(script, 2e-3)
    read(section, steps, 100)
    assert steps.weights == [1] * 100


def test_one_of_many_fast_calls_counts_for_the_others(script: Script) -> None:
    section, steps = Section(), Steps(script, 1e-6)
    read(section, steps, 200_000)
    assert 100 < len(steps.weights) < 500
    assert sum(steps.weights) == pytest.approx(200_000, rel=0.01)


def test_calls_that_become_slow_are_measured_again(script: Script) -> None:
    section, steps = Section(), Steps(script, 1e-6)
    read(section, steps, 100_000)
    before, steps.seconds = len(steps.weights), 5e-3
    read(section, steps, 3000)
    assert len(steps.weights) - before > 2000


def test_a_long_pause_permits_no_expensive_measurement(script: Script) -> None:
    section, steps = Section(), Steps(script, 1e-6)
    read(section, steps, 100)
    script.now += 3600
    before = len(steps.weights)
    read(section, steps, 100_000)
    assert len(steps.weights) - before < 1500


def test_users_random_numbers_are_left_alone(script: Script) -> None:
    random.seed(3)
    expected = random.random()
    random.seed(3)
    read(Section(), Steps(script, 1e-6), 1000)
    assert random.random() == expected


def test_a_measured_call_ends_with_an_error(script: Script) -> None:
    class Failing(Stream):
        def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
            raise ValueError

    with pytest.raises(ValueError):
        Section().read(Failing(), 1, 1)
    assert module._threads.section is None
