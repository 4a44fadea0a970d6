"""Positions of calls: sets of ranges, against sets of numbers."""

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from stoker.dataset.streams.calls.call_ranges import (
    NO_DIGEST,
    CallRange,
    PositionSet,
    common,
    digest_of,
    merged,
    stream_of,
    without,
)

ranges = st.lists(
    st.builds(
        lambda stream, first, length: CallRange(stream, first, first + length),
        st.integers(1, 2),
        st.integers(0, 12),
        st.integers(0, 5),
    ),
    max_size=6,
)


def _positions(found: list[CallRange]) -> list[tuple[int, int]]:
    return [(each.stream, i) for each in found for i in range(each.first, each.stop)]


def _set(found: list[CallRange]) -> set[tuple[int, int]]:
    return set(_positions(found))


@given(ranges)
def test_merged_has_each_position_once_in_order(some):
    assert _positions(merged(some)) == sorted(_set(some))


@given(ranges, ranges)
def test_common_and_without_are_those_of_sets(some, others):
    assert _set(common(some, others)) == _set(some) & _set(others)
    assert _set(without(some, others)) == _set(some) - _set(others)


@given(ranges, st.integers(0, 20))
def test_distance_is_that_to_the_next_position(some, index):
    found = merged(each._replace(stream=1) for each in some)
    later = [i - index for _, i in _positions(found) if i >= index]
    positions = PositionSet(found)
    assert positions.distance(index) == (min(later) if later else None)
    assert (index in positions) == (0 in later)


def test_streams_differ_by_node_and_epoch():
    keys = [(0, (0,)), (0, (1,)), (1, (0,)), (0, (0, 0)), (1, (0, 2, 3))]
    assert len({stream_of(*key) for key in keys}) == len(keys)
    assert all(0 < stream_of(*key) < 2**63 for key in keys)


SHOW = """
from stoker.dataset.streams.calls.call_ranges import digest_of, stream_of
import numpy as np
print(stream_of(3, (1, 2**40)), digest_of(("text", 1.5, {"a": np.arange(5)})))
"""


def test_streams_and_digests_are_the_same_in_all_processes():
    shown = {
        subprocess.check_output(
            [sys.executable, "-c", SHOW], env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    }
    assert len(shown) == 1


def test_an_element_that_cannot_be_pickled_has_no_digest():
    assert digest_of(lambda: 0) == NO_DIGEST
    assert digest_of(1) != digest_of(2)
