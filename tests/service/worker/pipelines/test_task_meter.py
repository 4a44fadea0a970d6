"""Times of one task, on a clock that the tests advance."""

import contextlib
import threading

import pytest

from stoker.dataset.streams.measure.stopwatch import Stopwatch
from stoker.service.worker.pipelines.task_meter import ComputingTimes, TaskMeter


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
    assert watch.seconds() == 2
    with watch:
        clock.now += 1
        assert watch.seconds() == 3
    assert watch.seconds() == 3


def test_a_stopwatch_counts_a_block_that_raises(clock):
    watch = Stopwatch(clock)
    with contextlib.suppress(ZeroDivisionError), watch:
        clock.now += 2
        raise ZeroDivisionError
    clock.now += 5
    assert watch.seconds() == 2


def test_waits_for_splits_are_no_computation(clock):
    meter = TaskMeter({3: 5}, clock)
    clock.now += 7  # it is opened
    meter.begin()
    with meter.times.reading():
        clock.now += 2
        with meter.times.lacking_split():
            clock.now += 6
    with meter.put_wait:
        clock.now += 1
    evidence = meter.evidence()
    assert (evidence.seconds, evidence.computing) == (9, 2)
    assert (evidence.put_wait, evidence.split_wait) == (1, 6)
    assert evidence.splits == {3: 5}
    assert not evidence.ended


class _Source:
    """A source whose waits for splits on its own thread begin and end when the test says so."""

    def __init__(self, times: ComputingTimes) -> None:
        self._times = times
        self._leave = threading.Event()
        self._inside = threading.Event()

    def wait(self) -> None:
        self._leave.clear()
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()
        assert self._inside.wait(10)

    def proceed(self) -> None:
        self._inside.clear()
        self._leave.set()
        self._thread.join()

    def _wait(self) -> None:
        with self._times.lacking_split():
            self._inside.set()
            self._leave.wait(10)


def test_sources_that_wait_together_wait_once(clock):
    times = ComputingTimes(clock)
    one, other = _Source(times), _Source(times)
    with times.reading():
        one.wait()
        clock.now += 1
        other.wait()
        clock.now += 4
        assert times.seconds == (0, 5)
        one.proceed()
        clock.now += 2
        assert times.seconds == (0, 7)
        other.proceed()
        clock.now += 3
    assert times.seconds == (3, 7)


def test_a_wait_while_other_threads_have_elements_is_no_lack_of_splits(clock):
    times = ComputingTimes(clock)
    source = _Source(times)
    source.wait()
    for _ in range(5):
        with times.reading():
            clock.now += 2
    assert times.seconds == (10, 0)
    with times.reading():
        clock.now += 1
        source.proceed()
        clock.now += 1
    assert times.seconds == (11, 1)


def test_a_wait_while_the_pipeline_waits_for_room_does_not_count(clock):
    meter = TaskMeter(clock=clock)
    source = _Source(meter.times)
    meter.begin()
    with meter.put_wait:
        source.wait()
        clock.now += 1
        source.proceed()
        source.wait()
        clock.now += 2
    assert meter.evidence().split_wait == 0
    with meter.times.reading():
        clock.now += 2
        assert (meter.evidence().split_wait, meter.evidence().computing) == (2, 0)
        source.proceed()
    clock.now += 9
    assert (meter.evidence().split_wait, meter.evidence().put_wait) == (2, 3)


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
