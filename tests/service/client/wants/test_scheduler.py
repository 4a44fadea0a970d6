"""Throughput, memory and repeated work of the scheduler, in simulated time."""

import random
from collections.abc import Callable

import pytest

from stoker.service.client.orders.position_order import PositionOrder
from stoker.service.client.wants.epoch_share import EpochShare
from stoker.service.client.wants.scheduler import Scheduler
from tests.service.client.wants.simulated_reading import SimulatedReading, SimulatedWorker

MIB = 1 << 20


def _workers(seconds: list[float]) -> list[SimulatedWorker]:
    return [SimulatedWorker(lambda _, x=x: x) for x in seconds]  # type: ignore[misc]


def _speed(reading: SimulatedReading, seconds: list[float]) -> float:
    """Return the speed, as a fraction of that of these workers that never rest."""
    assert reading.yielded == list(range(len(reading.yielded)))
    return len(reading.yielded) / sum(1 / x for x in seconds) / reading.end


@pytest.mark.parametrize(
    ("seconds", "workers", "least"),
    [
        (0.02, 1, 0.99),
        (0.02, 8, 0.99),
        (0.02, 32, 0.99),
        (0.0002, 2, 0.98),
        (0.0002, 8, 0.98),
        (2e-6, 2, 0.95),
    ],
)
def test_equal_workers_never_rest(seconds: float, workers: int, least: float):
    length = min(100_000, int(workers * 4.0 / seconds))
    reading = SimulatedReading(_workers([seconds] * workers), length).run()
    assert _speed(reading, [seconds] * workers) >= least
    assert sum(worker.computed for worker in reading.workers) == length


@pytest.mark.parametrize("seconds", [0.02, 0.0005])
@pytest.mark.parametrize("buffered", [64, 200_000])
def test_one_of_eight_that_is_ten_times_slower_delays_nobody(seconds: float, buffered: int):
    reading = SimulatedReading(
        _workers([seconds] * 7 + [10 * seconds]),
        int(7 * 10 / seconds),
        buffer_bytes=1256 * buffered,
    ).run()
    assert _speed(reading, [seconds] * 7) >= 0.95
    assert reading.repeated <= 0.02 * len(reading.yielded)


@pytest.mark.parametrize("workers", [8, 32])
def test_turns_that_vary_by_half(workers: int):
    rng = random.Random(0)
    times = [rng.uniform(0.5, 1.5) * 0.005 for _ in range(1000)]
    vary: Callable[[int], float] = lambda element: times[element % 1000]  # noqa: E731
    reading = SimulatedReading([SimulatedWorker(vary) for _ in range(workers)], workers * 1000)
    assert _speed(reading.run(), [0.005] * workers) >= 0.97
    assert not reading.repeated


def test_what_a_lost_worker_had_first_is_asked_of_one_that_has_enough():
    order = PositionOrder(EpochShare())
    order.length = 100
    scheduler = Scheduler(order, 64 * MIB, None)
    scheduler.joined(1)
    scheduler.joined(2)
    assert scheduler.plan(0.0) == [(1, (0, 1)), (2, (1, 2))]
    scheduler.lost(1)
    assert scheduler.plan(0.1) == [(2, (0, 1))]
    assert scheduler.plan(0.2) == []


def test_a_slow_worker_that_is_ready_does_not_keep_the_first_element():
    order = PositionOrder(EpochShare())
    order.length = 100
    scheduler = Scheduler(order, 64 * MIB, 4)
    for worker, seconds in ((1, 0.001), (2, 1.0)):
        scheduler.joined(worker)
        scheduler.workers[worker].seconds = seconds
    scheduler.asked.add(1, 4)
    scheduler.workers[1].ask(1, 4, 0.0)
    scheduler.workers[1].turn = 1
    assert scheduler.plan(0.0) == [(1, (0, 1))]


def test_a_worker_that_freezes_is_waited_for_once():
    workers = _workers([0.002] * 4)
    workers[1].frozen_at = 1.0
    reading = SimulatedReading(workers, 8000).run()
    assert reading.yielded == list(range(8000))
    assert 1.0 <= reading.longest_wait < 1.4
    assert reading.end < 8000 * 0.002 / 3 + 1.0
    assert reading.repeated <= 100


@pytest.mark.parametrize("nbytes", [1000, 2 * MIB, 15 * MIB, 40 * MIB])
def test_bytes_ahead_of_a_slow_consumer_are_bounded(nbytes: int):
    reading = SimulatedReading(
        _workers([0.001] * 4),
        2000,
        nbytes=lambda _: nbytes,
        consume=0.002,
        buffer_bytes=16 * MIB,
    ).run()
    assert reading.yielded == list(range(2000))
    assert reading.most_bytes <= 16 * MIB + 4 * (nbytes + 256)
    assert reading.end <= 2000 * 0.003 * 1.1
    assert not reading.repeated


def test_scalars_have_turns_of_many_thousand():
    length = 2_000_000
    reading = SimulatedReading(
        _workers([20e-9] * 2), length, nbytes=lambda _: 8, consume=100e-9
    ).run()
    assert reading.yielded == list(range(length))
    assert reading.end <= 1.2 * length * 100e-9
    assert length / reading.turns >= 4096


@pytest.mark.parametrize(
    ("workers", "seconds"), [(2, 0.0005), (16, 0.02), (64, 0.02), (64, 0.0005)]
)
def test_the_trainer_sends_few_messages_however_many_workers_there_are(
    workers: int, seconds: float
):
    length = int(workers * 5.0 / seconds)
    reading = SimulatedReading(_workers([seconds] * workers), length).run()
    assert reading.turns / reading.end <= 320
    assert _speed(reading, [seconds] * workers) >= 0.96


def test_a_worker_that_joins_and_loads_delays_nobody():
    workers = [*_workers([0.002] * 2), SimulatedWorker(lambda _: 0.002, starts_at=1.0, loads=5.0)]
    reading = SimulatedReading(workers, 10_000).run()
    assert reading.longest_wait < 0.3
    assert reading.repeated <= 2
    assert workers[2].computed > 500


def test_a_worker_that_was_slow_is_measured_again():
    workers = _workers([0.01] * 3)
    workers[2].seconds = lambda element: 0.5 if element < 300 else 0.01
    reading = SimulatedReading(workers, 6000, buffer_bytes=1256 * 30).run()
    assert reading.yielded == list(range(6000))
    assert workers[2].computed > 1000
