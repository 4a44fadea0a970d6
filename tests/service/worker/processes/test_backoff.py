"""Delays before restarts of worker processes."""

from stoker.dataset.streams.calls.call_ranges import CallRange
from stoker.service.worker.processes.backoff import Backoff


def at(*indices: int) -> list[CallRange]:
    return [CallRange(1, index, index + 1) for index in indices]


def _delays(*deaths: list[CallRange]) -> list[float]:
    backoff = Backoff(first=1, longest=5, good_run=30)
    return [backoff.after(1.0, calls) for calls in deaths]


def test_backoff_doubles_to_its_limit_and_resets_on_a_good_run():
    backoff = Backoff(first=1, longest=5, good_run=30)
    assert [backoff.after(0) for _ in range(4)] == [1, 2, 4, 5]
    assert backoff.after(31) == 1
    assert backoff.after(0) == 2


def test_three_deaths_of_one_element_are_delayed_shortly():
    assert _delays(at(1, 2), at(2, 3), at(2)) == [1, 1, 1]


def test_deaths_of_further_elements_are_delayed_shortly():
    deaths = [at(index) for index in range(6) for _ in range(3)]
    assert _delays(*deaths) == [1] * 18


def test_an_element_that_is_never_found_is_delayed_longer():
    assert _delays(*[at(1)] * 6) == [1, 1, 1, 2, 4, 5]


def test_deaths_at_random_places_are_delayed_longer():
    assert _delays(at(1), at(2), at(3), at(4)) == [1, 2, 4, 5]
