"""Times of a consumer, on a scripted clock."""

from types import SimpleNamespace

import pytest

from stoker.dataset.streams import consumer as module
from stoker.dataset.streams.consumer import Consumer
from stoker.dataset.streams.meters import Meters

MS = 1e-3


class Trainer:
    """Reads of a given length, with steps in between, of which some are measured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr(module, "time", clock)
        self.consumer = Consumer(Meters())
        self.measured = 0
        self._unmeasured = 0

    def read(self, count: int, wait: float, step: float) -> None:
        for _ in range(count):
            if self._unmeasured:
                self._unmeasured -= 1
                self.now += wait
            else:
                self.measured += 1
                start = self.consumer.begin()
                self.now += wait
                self._unmeasured = self.consumer.end(start)
            self.now += step


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    return Trainer(monkeypatch)


def test_before_the_first_read_nothing_was_waited_for(trainer: Trainer) -> None:
    assert trainer.consumer.times(0) == (0, 0.0, 0.0)


def test_slow_reads_are_measured_exactly(trainer: Trainer) -> None:
    trainer.read(100, wait=3 * MS, step=1 * MS)
    assert trainer.measured == 100
    elements, elapsed, waited = trainer.consumer.times(100)
    assert elements == 100
    assert elapsed == pytest.approx(399 * MS)  # the last step has not ended
    assert waited == pytest.approx(300 * MS)


def test_slow_steps_are_measured_exactly(trainer: Trainer) -> None:
    trainer.read(100, wait=0.001 * MS, step=1 * MS)
    assert trainer.measured == 100
    assert trainer.consumer.times(100).waited == pytest.approx(0.1 * MS)


def test_fast_reads_are_sampled_and_estimated(trainer: Trainer) -> None:
    trainer.read(100_000, wait=0.0006 * MS, step=0.0002 * MS)
    assert trainer.measured < 1000
    _, elapsed, waited = trainer.consumer.times(100_000)
    assert elapsed == pytest.approx(80 * MS, rel=0.01)
    assert waited == pytest.approx(60 * MS, rel=0.01)


def test_fast_reads_that_become_slow_are_noticed(trainer: Trainer) -> None:
    trainer.read(10_000, wait=0.001 * MS, step=0.0)
    before = trainer.measured
    trainer.read(3000, wait=5 * MS, step=0.0)
    assert trainer.measured - before > 1900
    _, elapsed, waited = trainer.consumer.times(13_000)
    assert waited == pytest.approx(elapsed, rel=0.01)


def test_steps_that_become_slow_count_as_no_waiting(trainer: Trainer) -> None:
    trainer.read(10_000, wait=0.001 * MS, step=0.0)
    trainer.read(3000, wait=0.001 * MS, step=5 * MS)
    _, elapsed, waited = trainer.consumer.times(13_000)
    assert waited < 0.02 * elapsed
