"""Reconnection of one task."""

import random

from stoker.service import messages as m
from stoker.service.client.task_cursor import RECONNECT_FIRST, RECONNECT_LONGEST, TaskCursor


def _delays(attempts: int) -> list[float]:
    cursor = TaskCursor(m.TaskInfo(1, "worker:1", {}))
    rng = random.Random(0)
    delays = []
    for _ in range(attempts):
        cursor.postpone("refused", 100.0, rng)
        delays.append(cursor.try_at - 100.0)
    return delays


def test_delay_doubles_up_to_the_longest():
    delays = _delays(12)
    for attempt, delay in enumerate(delays):
        limit = min(RECONNECT_FIRST * 2**attempt, RECONNECT_LONGEST)
        assert limit / 2 <= delay <= limit


def test_5000_failed_attempts_are_followed_by_another():
    assert all(delay <= RECONNECT_LONGEST for delay in _delays(5_000))
