"""Quantiles of durations."""

import pytest

from stoker.dataset.streams.work import Durations


def test_without_durations_quantiles_are_zero() -> None:
    assert Durations().quantile(0.5) == 0.0


@pytest.mark.parametrize("seconds", [3e-9, 1e-6, 4.1e-3, 0.5, 1.0, 77.0])
def test_a_quantile_is_within_an_eighth(seconds: float) -> None:
    durations = Durations()
    durations.add(seconds)
    assert durations.quantile(0.5) == pytest.approx(seconds, rel=0.125)


def test_quantiles_separate_a_slow_hundredth() -> None:
    durations = Durations()
    durations.add(1e-3, 985)
    durations.add(1.0, 15)
    assert durations.quantile(0.5) == pytest.approx(1e-3, rel=0.125)
    assert durations.quantile(0.99) == pytest.approx(1.0, rel=0.125)


def test_merged_histograms_count_both() -> None:
    durations, other = Durations(), Durations()
    durations.add(1e-3, 2)
    other.add(1.0, 1)
    durations.merge(other)
    assert durations.quantile(0.6) == pytest.approx(1e-3, rel=0.125)
    assert durations.quantile(0.9) == pytest.approx(1.0, rel=0.125)


def test_a_clock_that_stood_still_counts_as_a_nanosecond() -> None:
    durations = Durations()
    durations.add(0.0)
    assert durations.quantile(0.5) == pytest.approx(1e-9, rel=0.125)
