"""The estimate of the round trip to the dispatcher."""

import pytest

from stoker.service.worker.tasks.round_trip import LOOKAHEAD_SECONDS, RoundTrip


def _estimate(*seconds: float) -> float:
    trip = RoundTrip()
    for each in seconds:
        trip.add(each)
    return trip.seconds


def test_second_long_round_trip_raises_the_estimate():
    assert _estimate(0.002, 0.002, 0.3, 0.2) == 0.2


def test_one_long_wait_has_no_effect():
    assert _estimate(0.002, 0.002, 30.0, 0.002) == 0.002


def test_estimate_shrinks_slowly():
    assert _estimate(0.2, 0.2, 0.1) == pytest.approx(0.2 - 0.1 / 8)


def test_lookahead_is_two_round_trips():
    trip = RoundTrip()
    assert trip.lookahead == LOOKAHEAD_SECONDS
    trip.add(0.3)
    trip.add(0.3)
    assert trip.lookahead == 0.6
