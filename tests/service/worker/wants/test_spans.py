"""Arithmetic of positions, compared with sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import InvalidArgumentError
from stoker.service.worker.wants.spans import (
    common,
    positions_of,
    span_of,
    starting_at,
    without,
)

SPANS = st.builds(
    lambda first, count, step: range(first, first + count * step, step),
    st.integers(0, 60),
    st.integers(1, 30),
    st.integers(1, 9),
)


@given(SPANS, SPANS)
def test_common_positions_are_those_of_both(one, other):
    assert list(common(one, other)) == sorted(set(one) & set(other))


@given(SPANS, SPANS)
def test_without_leaves_the_other_positions_or_refuses_their_step(span, removed):
    try:
        rest = without(span, removed)
    except InvalidArgumentError:
        assert span.step != removed.step
    else:
        assert sorted(x for part in rest for x in part) == sorted(set(span) - set(removed))
        assert all(rest)


@given(SPANS, st.integers(0, 400))
def test_starting_at_drops_earlier_positions(span, position):
    assert list(starting_at(span, position)) == [x for x in span if x >= position]


@given(st.lists(SPANS, min_size=1, max_size=5))
def test_positions_name_the_same_elements_in_their_order(spans):
    named = [x for positions in positions_of(spans) for x in span_of(positions)]
    assert named == [x for span in spans for x in span]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([range(4), range(4, 9)], [(0, 9, 1)]),
        ([range(0, 8, 4), range(8, 9)], [(0, 3, 4)]),
        ([range(0, 8, 4), range(8, 20, 2)], [(0, 2, 4), (8, 6, 2)]),
        ([range(4), range(5, 7)], [(0, 4, 1), (5, 2, 1)]),
    ],
)
def test_neighbours_are_named_together(spans, expected):
    assert positions_of(spans) == expected


def test_positions_up_to_the_end_of_an_endless_epoch_are_exact():
    end = 1 << 62
    span = span_of((end - 10, 5, 2))
    assert list(starting_at(span, end - 5)) == [end - 4, end - 2]
    assert not starting_at(span, 1 << 64)
    assert common(span, range(end - 4, end)) == range(end - 4, end, 2)
