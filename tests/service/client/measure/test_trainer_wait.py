"""Waiting times of trainers in reports."""

from stoker.dataset.streams.measure.bottleneck import Pass
from stoker.service.client.measure.reading import TrainerWait


def test_the_trainer_waits_less_than_a_prefetch_thread():
    wait = TrainerWait()
    assert wait.until(4.0, Pass(10, 5.0, 0.5), blocked=False) == 0.5
    assert wait.until(9.0, Pass(20, 10.0, 0.75), blocked=False) == 0.75


def test_without_the_times_of_the_trainer_those_of_the_reader_count():
    wait = TrainerWait()
    assert wait.until(2.0, None, blocked=False) == 2.0
    assert wait.until(3.0, None, blocked=False) == 3.0


def test_an_estimate_that_falls_reduces_no_total():
    wait = TrainerWait()
    assert wait.until(0.0, Pass(10, 5.0, 2.0), blocked=False) == 2.0
    assert wait.until(0.0, Pass(20, 9.0, 1.0), blocked=False) == 2.0
    assert wait.until(0.0, Pass(30, 9.5, 1.5), blocked=False) == 2.5


def test_a_blocked_read_that_is_not_measured_counts():
    wait = TrainerWait()
    assert wait.until(10.0, Pass(9, 1.0, 1.0), blocked=True) == 10.0
    assert wait.until(15.0, Pass(9, 1.0, 1.0), blocked=True) == 15.0


def test_a_blocked_read_that_is_measured_counts_once():
    wait = TrainerWait()
    assert wait.until(10.0, Pass(9, 11.0, 10.0), blocked=True) == 10.0
    assert wait.until(15.0, Pass(9, 16.0, 15.0), blocked=False) == 15.0
