"""How many elements should be under way, by how fast the user takes them."""

import pytest

from stoker.service.client.pace import FARTHEST, FEWEST, FIRST, HORIZON, Pace


def _after(pace: Pace, elements: int, seconds: float, chunk: int = 10) -> int:
    """The window after the user took so many, each in so long."""
    for _ in range(0, elements, chunk):
        pace.took(chunk, chunk * seconds, 0.0)
    return pace.window


def test_it_begins_with_a_few_and_doubles_with_each_quarter_that_is_taken():
    pace = Pace()
    windows = [pace.window]
    for _ in range(6):
        pace.took(pace.window // 4, 0.0, 0.0)
        windows.append(pace.window)
    assert windows == [FIRST * 2**n for n in range(7)]


@pytest.mark.parametrize("per_second", [100, 5_000, 200_000])
def test_the_window_is_what_the_user_takes_in_a_tenth_of_a_second(per_second: int):
    window = _after(Pace(), 4 * per_second, 1 / per_second)
    assert window == pytest.approx(per_second * HORIZON, rel=0.05, abs=1)


def test_a_user_who_takes_one_a_minute_has_one_in_hand_and_one_to_follow():
    assert _after(Pace(), 20, 60.0, chunk=1) == FEWEST


def test_it_follows_a_user_who_becomes_slower_and_one_who_becomes_faster():
    pace = Pace()
    fast = _after(pace, 100_000, 1e-5, chunk=1000)
    assert _after(pace, 200, 0.1) < fast / 100
    assert _after(pace, 100_000, 1e-5) == pytest.approx(fast, rel=0.2)


def test_a_long_pause_is_not_taken_for_the_users_speed():
    pace = Pace()
    before = _after(pace, 100_000, 1e-4, chunk=100)
    pace.took(100, 600.0, 0.0)
    _after(pace, 5_000, 1e-4, chunk=100)
    assert pace.window > before / 3


def test_a_user_who_takes_a_batch_at_once_and_works_on_it_has_one_speed():
    pace = Pace()
    windows = []
    for k in range(6_400):
        pace.took(1, 0.2 if k % 64 == 63 else 0.0, 0.0)
        windows.append(pace.window)
    assert min(windows[3_200:]) >= 0.5 * 32
    assert max(windows[3_200:]) <= 2.0 * 32


def _waiting(pace: Pace, part: float, now: float) -> float:
    """Ten seconds of a user of 100 elements a second who waits part of the time; the time then."""
    for _ in range(1000):
        now += 0.01
        pace.stalled(part * 0.01)
        pace.took(1, 0.01, now)
    return now


def test_the_window_grows_while_the_user_waits_for_credit_to_travel_and_shrinks_again():
    pace = Pace()
    now = _waiting(pace, 0.0, 0.0)
    usual = pace.window
    now = _waiting(pace, 0.5, now)
    assert pace.window == pytest.approx(usual * FARTHEST / HORIZON, rel=0.2)
    now = _waiting(pace, 0.03, now)  # a little is the price of a small window
    assert pace.window == pytest.approx(usual * FARTHEST / HORIZON, rel=0.2)
    for _ in range(4):
        now = _waiting(pace, 0.0, now)
    assert pace.window == pytest.approx(usual, rel=0.2)
