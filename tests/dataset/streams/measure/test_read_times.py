"""Times of the reads of an iterator, on a scripted clock."""

import random

import pytest

from stoker.dataset.streams.measure import read_times, sampling, stopwatch
from stoker.dataset.streams.measure.read_times import ReadTimes
from tests.dataset.streams.scripted import Script

MS = 1e-3


class Trainer:
    """Reads of a given length, with steps in between, of which some are measured."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.reads = ReadTimes()
        self.measured = 0
        self._unmeasured = 0

    def read(self, count: int, wait: float, step: float) -> None:
        for _ in range(count):
            if self._unmeasured:
                self._unmeasured -= 1
                self.script.now += wait
            else:
                self.measured += 1
                self.reads.begin()
                self.script.now += wait
                self._unmeasured = self.reads.end()
            self.script.now += step


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    monkeypatch.setattr(sampling, "_random", random.Random(5))
    return Trainer(Script(monkeypatch, read_times, sampling, stopwatch))


def test_before_the_first_read_nothing_was_waited_for(trainer: Trainer) -> None:
    assert trainer.reads.times(0) == (0, 0.0, 0.0)


def test_slow_reads_are_measured_exactly(trainer: Trainer) -> None:
    trainer.read(100, wait=3 * MS, step=1 * MS)
    assert trainer.measured == 100
    elements, elapsed, waited = trainer.reads.times(100)
    assert elements == 100
    assert elapsed == pytest.approx(399 * MS)  # the last step has not ended
    assert waited == pytest.approx(300 * MS)


def test_slow_steps_are_measured_exactly(trainer: Trainer) -> None:
    trainer.read(100, wait=0.001 * MS, step=1 * MS)
    assert trainer.measured == 100
    assert trainer.reads.times(100).waited == pytest.approx(0.1 * MS)


def test_fast_reads_are_sampled_and_estimated(trainer: Trainer) -> None:
    trainer.read(100_000, wait=0.0006 * MS, step=0.0002 * MS)
    assert trainer.measured < 1000
    _, elapsed, waited = trainer.reads.times(100_000)
    assert elapsed == pytest.approx(80 * MS, rel=0.02)
    assert waited == pytest.approx(60 * MS, rel=0.02)


def test_fast_reads_that_become_slow_are_noticed(trainer: Trainer) -> None:
    trainer.read(10_000, wait=0.001 * MS, step=0.0)
    before = trainer.measured
    trainer.read(3000, wait=5 * MS, step=0.0)
    assert trainer.measured - before > 1800
    _, elapsed, waited = trainer.reads.times(13_000)
    assert waited == pytest.approx(elapsed, rel=0.01)


def test_steps_that_become_slow_count_as_no_waiting(trainer: Trainer) -> None:
    trainer.read(10_000, wait=0.001 * MS, step=0.0)
    trainer.read(3000, wait=0.001 * MS, step=5 * MS)
    _, elapsed, waited = trainer.reads.times(13_000)
    assert waited < 0.02 * elapsed


@pytest.mark.parametrize("count", [256, 512, 1024])
def test_a_trainer_that_reads_in_bursts_hardly_waits(trainer: Trainer, count: int) -> None:
    for _ in range(100):
        trainer.read(count, wait=0.005 * MS, step=0.0005 * MS)
        trainer.script.now += 50 * MS
    times = trainer.reads.times(100 * count)
    assert times.waiting == pytest.approx(count * 0.005 / (count * 0.0055 + 50), rel=0.3)


def test_a_pause_between_bursts_of_fast_reads_is_no_waiting(trainer: Trainer) -> None:
    for _ in range(5):
        trainer.read(30_000, wait=0.001 * MS, step=0.0002 * MS)
        trainer.script.now += 1000 * MS
    assert trainer.reads.times(150_000).waiting < 0.5
