"""Time in which a thread had a core or waited for one."""

import threading
import time

import pytest

from stoker.dataset.threads import runnable
from stoker.dataset.threads.runnable import runnable_seconds


def test_waiting_for_an_event_does_not_count() -> None:
    before, began = runnable_seconds(), time.perf_counter()
    threading.Event().wait(50e-3)
    assert runnable_seconds() - before < time.perf_counter() - began - 10e-3


@pytest.mark.parametrize("schedstat", [None, "/no/such/file"])
def test_computing_counts(schedstat: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if schedstat is not None:
        monkeypatch.setattr(runnable, "_SCHEDSTAT", schedstat)
    before, began = runnable_seconds(), time.thread_time()
    while time.thread_time() - began < 20e-3:
        pass
    assert runnable_seconds() - before >= 15e-3  # the system counts in ticks of up to 4 ms
