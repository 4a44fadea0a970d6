"""Sets of splits, compared with sets of ints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.service.dispatcher.entities.split_ranges import SplitRanges, to_ranges


@given(st.data())
def test_ranges_behave_as_a_set(data):
    ranges = SplitRanges()
    expected: set[int] = set()
    for _ in range(data.draw(st.integers(0, 30))):
        start = data.draw(st.integers(0, 20))
        stop = data.draw(st.integers(start, 20))
        if expected.isdisjoint(range(start, stop)) and data.draw(st.booleans()):
            ranges.add(start, stop)
            expected |= set(range(start, stop))
        elif start < stop and expected.issuperset(range(start, stop)):
            ranges.remove(start, stop)
            expected -= set(range(start, stop))
        assert len(ranges) == len(expected)
        assert [x for x in range(-1, 22) if x in ranges] == sorted(expected)
        for count in (0, 1, 5, 30):
            assert ranges.first(count) == sorted(expected)[:count]
        if start < stop:
            assert ranges.is_disjoint(start, stop) == expected.isdisjoint(range(start, stop))
        assert ranges.ranges == to_ranges(expected)
        assert SplitRanges.of(ranges.ranges).first(99) == sorted(expected)
        assert SplitRanges.of(ranges.missing(20)).first(99) == sorted(set(range(20)) - expected)


def test_neighbouring_ranges_are_joined():
    ranges = SplitRanges()
    for start in (4, 0, 2, 1, 3):
        ranges.add(start, start + 1)
    assert ranges.ranges == [(0, 5)]


def test_removing_missing_numbers_is_an_error():
    with pytest.raises(KeyError):
        SplitRanges.of([(1, 3)]).remove(2, 4)
