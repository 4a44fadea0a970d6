"""Numbers as people read them."""

import pytest

from stoker.cli.status.quantities import count, duration, size


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (3, "3"), (0.26, "0.3"), (9.94, "9.9"), (10.4, "10"), (1234567.8, "1,234,568")],
)
def test_counts_have_separators_and_few_digits(number, text):
    assert count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1536, "1.5 kB"), (99_960, "100 kB"), (999_900, "1.0 MB")],
)
def test_sizes_have_a_unit(number, text):
    assert size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.9, "59s"), (61, "1m01s"), (3600, "1h00m"), (90_000, "1d01h")],
)
def test_durations_have_two_units(seconds, text):
    assert duration(seconds) == text
