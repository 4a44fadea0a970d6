"""What a call took."""

import threading
import time

import pytest

from stoker.dataset.threads import meter
from stoker.dataset.threads.meter import Meter


def test_waiting_takes_time_and_no_core() -> None:
    running = Meter(queued=True)
    threading.Event().wait(20e-3)
    cost = running.stop()
    assert cost.seconds >= 20e-3
    assert cost.cpu < 20e-3
    assert cost.queued is not None
    assert 0 <= cost.queued <= cost.seconds


def test_computing_takes_a_core() -> None:
    running = Meter(queued=False)
    began = time.thread_time()
    while time.thread_time() - began < 10e-3:
        pass
    cost = running.stop()
    assert 10e-3 <= cost.cpu <= cost.seconds + 1e-3
    assert cost.queued is None


def test_where_the_system_does_not_say_nothing_was_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_SCHEDSTAT", "/no/such/file")
    assert Meter(queued=True).stop().queued == 0
