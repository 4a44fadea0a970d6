"""Times and sizes with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.options.units import SIZE, TIME, OptionError, parse_seconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        *[("500ms", 500), ("10s", 10_000), ("2min", 120_000), ("1h", 3_600_000), ("1.5 s", 1500)],
        *[("250", 250), ("-1", -1), ("0", 0), (" 10s ", 10_000), ("0.25min", 15_000)],
    ],
)
def test_times(text, milliseconds):
    assert TIME.parse(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *[("64kB", 64_000), ("1GB", 10**9), ("2TB", 2 * 10**12), ("100B", 100), ("4096", 4096)],
        *[("64KiB", 64 << 10), ("256MiB", 256 << 20), ("1.5GiB", 3 << 29), ("1TiB", 1 << 40)],
    ],
)
def test_sizes(text, size):
    assert SIZE.parse(text) == size


@pytest.mark.parametrize("quantity", [TIME, SIZE])
@given(st.integers(-1, 2**49))
def test_formatted_quantities_parse_to_their_value(quantity, value):
    assert quantity.parse(quantity.format(value)) == value


TIMES = 'write a number of milliseconds, or one with a unit: "500ms", "10s", "2min", "1h"'
SIZES = (
    "write a number of bytes, or one with a unit: "
    '"64kB", "1GB" (powers of 1000), "64KiB", "256MiB", "1GiB" (powers of 1024)'
)
KILO = 'write "4kB" or "4KiB"'


@pytest.mark.parametrize(
    ("quantity", "text", "message"),
    [
        (TIME, "soon", f"'soon' is not a time; {TIMES}"),
        (TIME, "", f"'' is not a time; {TIMES}"),
        (TIME, "-10s", f"'-10s' is not a time; {TIMES}"),
        (TIME, "1_000", f"'1_000' is not a time; {TIMES}"),
        (TIME, "٣s", f"'٣s' is not a time; {TIMES}"),
        (TIME, "10MiB", f"'10MiB' is not a time: it has no unit 'MiB'; {TIMES}"),
        (TIME, "1d", f"'1d' is not a time: it has no unit 'd'; {TIMES}"),
        (TIME, "1.5", f"'1.5' is not a whole number of milliseconds; {TIMES}"),
        (
            TIME,
            "5m",
            "'5m' is not a time: the unit 'm' is ambiguous or unknown; write \"5ms\" or \"5min\"",
        ),
        (TIME, "2S", "'2S' is not a time: the unit 'S' is ambiguous or unknown; write \"2s\""),
        (SIZE, "4k", "'4k' is not a size: the unit 'k' is ambiguous or unknown; " + KILO),
        (
            SIZE,
            "1gb",
            "'1gb' is not a size: the unit 'gb' is ambiguous or unknown; write \"1GB\" or \"1GiB\"",
        ),
        (SIZE, "10s", f"'10s' is not a size: it has no unit 's'; {SIZES}"),
        (SIZE, "10min", f"'10min' is not a size: it has no unit 'min'; {SIZES}"),
    ],
)
def test_refusals_say_what_to_write(quantity, text, message):
    with pytest.raises(OptionError) as caught:
        quantity.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2", 2.0), ("2s", 2.0), ("1.5 s", 1.5), ("500ms", 0.5), ("1min", 60.0), ("2h", 7200.0)],
)
def test_times_may_have_a_unit(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "25h", "999999999999h"])
def test_times_are_positive_and_at_most_a_day(text):
    with pytest.raises(OptionError, match="is not a positive time of at most a day"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["", "-1s", "2 hours", "s", "1e3", "nan"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(OptionError, match="is not a time"):
        parse_seconds(text)


def test_an_ambiguous_unit_of_a_time_is_explained():
    with pytest.raises(OptionError, match='write "5ms" or "5min"'):
        parse_seconds("5m")
