"""The number of elements that should be in flight, from the consumer's speed."""

import pytest

from stoker.service.client.flow.pace import FEWEST, FIRST, HORIZON, LONGEST_HORIZON, Pace


def _after(pace: Pace, elements: int, seconds: float, chunk: int = 10) -> int:
    """Return the window after `elements` elements with `seconds` of work on each."""
    for _ in range(0, elements, chunk):
        pace.consumed(chunk, chunk * seconds, 0.0)
    return pace.window


def test_the_window_doubles_with_each_quarter_that_is_consumed():
    pace = Pace()
    windows = [pace.window]
    for _ in range(6):
        pace.consumed(pace.window // 4, 0.0, 0.0)
        windows.append(pace.window)
    assert windows == [FIRST * 2**n for n in range(7)]


@pytest.mark.parametrize("per_second", [100, 5_000, 200_000])
def test_the_window_is_a_tenth_of_a_second_of_work(per_second: int):
    window = _after(Pace(), 4 * per_second, 1 / per_second)
    assert window == pytest.approx(per_second * HORIZON, rel=0.05, abs=1)


def test_a_consumer_of_one_a_minute_has_one_and_the_next():
    assert _after(Pace(), 20, 60.0, chunk=1) == FEWEST


def test_the_window_follows_a_consumer_that_changes_its_speed():
    pace = Pace()
    fast = _after(pace, 100_000, 1e-5, chunk=1000)
    assert _after(pace, 200, 0.1) < fast / 100
    assert _after(pace, 100_000, 1e-5) == pytest.approx(fast, rel=0.2)


def test_a_long_pause_does_not_count_as_slow_work():
    pace = Pace()
    before = _after(pace, 100_000, 1e-4, chunk=100)
    pace.consumed(100, 600.0, 0.0)
    _after(pace, 5_000, 1e-4, chunk=100)
    assert pace.window > before / 3


def test_a_consumer_that_takes_batches_has_one_speed():
    pace = Pace()
    windows = []
    for k in range(6_400):
        pace.consumed(1, 0.2 if k % 64 == 63 else 0.0, 0.0)
        windows.append(pace.window)
    assert min(windows[3_200:]) >= 0.5 * 32
    assert max(windows[3_200:]) <= 2.0 * 32


def _wait(pace: Pace, part: float, now: float, rate: float = 100.0) -> float:
    """Work for ten seconds at 100 elements/s, apart from waiting part of the time; return `now`."""
    for _ in range(round(10 * rate)):
        now += 1 / rate
        pace.waited(part / rate)
        pace.consumed(1, 0.01, now)
    return now


def test_the_window_grows_only_while_the_consumer_waits():
    pace = Pace()
    now = _wait(pace, 0.0, 0.0)
    usual = pace.window
    now = _wait(pace, 0.5, now)
    assert pace.window == pytest.approx(usual * LONGEST_HORIZON / HORIZON, rel=0.2)
    now = _wait(pace, 0.03, now)
    assert pace.window == pytest.approx(usual * LONGEST_HORIZON / HORIZON, rel=0.2)
    for _ in range(4):
        now = _wait(pace, 0.0, now)
    assert pace.window == pytest.approx(usual, rel=0.2)


def test_a_waiting_consumer_gets_at_most_a_second_of_elements():
    pace = Pace()
    now = _wait(pace, 0.0, 0.0)
    for _ in range(4):  # a slow link: 20 of 100 elements/s arrive
        now = _wait(pace, 0.8, now, rate=20.0)
    assert pace.window == pytest.approx(20 * LONGEST_HORIZON, rel=0.2)


def test_a_gradual_start_allows_half_of_what_was_consumed():
    pace = Pace(gradual=True)
    windows = [pace.window]
    pace.begin()
    for _ in range(4):
        windows.append(pace.window)
        pace.consumed(20, 0.0, 0.0)
    assert windows == [0, 1, 11, 21, 31]
