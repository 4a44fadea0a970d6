"""Times of one task, on a clock that the tests advance."""

import contextlib
import threading

import pytest

from stoker.service.stopwatch import Stopwatch
from stoker.service.worker.task_meter import TaskMeter


class _Clock:
    """A clock that stands still unless it is advanced."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def test_a_stopwatch_adds_its_blocks_and_the_open_one(clock):
    watch = Stopwatch(clock)
    with watch:
        clock.now += 2
    clock.now += 50
    assert watch.seconds == 2
    with watch:
        clock.now += 1
        assert watch.seconds == 3
    assert watch.seconds == 3


def test_a_stopwatch_counts_a_block_that_raises(clock):
    watch = Stopwatch(clock)
    with contextlib.suppress(ZeroDivisionError), watch:
        clock.now += 2
        raise ZeroDivisionError
    clock.now += 5
    assert watch.seconds == 2


def test_waits_for_splits_are_no_computation(clock):
    meter = TaskMeter({3: 5}, clock)
    clock.now += 7  # it is opened
    meter.begin()
    with meter.computing:
        clock.now += 2
        with meter.split_wait:
            clock.now += 6
    with meter.put_wait:
        clock.now += 1
    evidence = meter.evidence()
    assert (evidence.seconds, evidence.computing) == (9, 2)
    assert (evidence.put_wait, evidence.split_wait) == (1, 6)
    assert evidence.splits == {3: 5}
    assert not evidence.ended


def test_sources_that_wait_together_wait_once(clock):
    meter = TaskMeter(clock=clock)
    inside, leave = threading.Barrier(2), threading.Event()

    def wait() -> None:
        with meter.split_wait:
            inside.wait(10)
            leave.wait(10)

    other = threading.Thread(target=wait)
    other.start()
    with meter.split_wait:
        inside.wait(10)
        clock.now += 4
    clock.now += 1
    assert meter.split_wait.seconds == 5
    leave.set()
    other.join()
    clock.now += 9
    assert meter.split_wait.seconds == 5


def test_time_after_the_end_does_not_count(clock):
    meter = TaskMeter(clock=clock)
    assert meter.evidence().seconds == 0
    meter.begin()
    clock.now += 3
    meter.end()
    clock.now += 60
    assert (meter.evidence().seconds, meter.evidence().ended) == (3, True)


def test_a_meter_that_cannot_measure_stages_measures_the_rest(clock, monkeypatch, caplog):
    meter = TaskMeter(clock=clock)
    meter.begin()
    clock.now += 2
    monkeypatch.setattr(meter.stages.recording, "reports", lambda: 1 // 0)
    assert [meter.evidence().seconds, meter.evidence().stages] == [2, []]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
