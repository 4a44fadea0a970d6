"""Throughput, memory and repeated work of the scheduler, in simulated time."""

import random

import pytest

from tests.service.client.wants.simulated_reading import SimulatedReading, SimulatedWorker


def workers_of(*seconds: float) -> list[SimulatedWorker]:
    return [SimulatedWorker(lambda _, each=each: each) for each in seconds]  # type: ignore[misc]


def read(workers: list[SimulatedWorker], length: int, **options: object) -> SimulatedReading:
    reading = SimulatedReading(workers, length, **options).run()  # type: ignore[arg-type]
    assert reading.yielded == list(range(length))
    return reading


def efficiency(reading: SimulatedReading, seconds: list[float], length: int) -> float:
    """Return the throughput relative to workers that are never idle."""
    return length / sum(1 / x for x in seconds) / reading.end


@pytest.mark.parametrize("seconds", [0.02, 0.001])
@pytest.mark.parametrize("workers", [1, 2, 8, 32])
def test_equal_workers_are_busy(workers: int, seconds: float) -> None:
    length = int(workers * 2.0 / seconds)
    reading = read(workers_of(*[seconds] * workers), length)
    assert efficiency(reading, [seconds] * workers, length) > 0.97
    assert reading.scheduler.asked_again == 0


def test_scalars_are_asked_for_in_large_turns() -> None:
    reading = read(workers_of(2e-6, 2e-6), 200_000)
    assert efficiency(reading, [2e-6] * 2, 200_000) > 0.9
    assert reading.turns < 100


@pytest.mark.parametrize("scale", [0.02, 0.001])
def test_one_of_eight_workers_may_be_ten_times_slower(scale: float) -> None:
    length = int(7 / scale * 4)
    reading = read(workers_of(*[scale] * 7, 10 * scale), length)
    assert length * scale / 7 / reading.end > 0.95
    assert reading.scheduler.asked_again == 0


def test_turns_that_vary_by_half_keep_workers_busy() -> None:
    draw = random.Random(1)
    times = [draw.uniform(0.005, 0.015) for _ in range(2_000)]
    reading = read([SimulatedWorker(times.__getitem__) for _ in range(8)], len(times))
    assert sum(times) / 8 / reading.end > 0.93
    assert reading.scheduler.asked_again <= 0.02 * len(times)


def test_elements_of_twenty_times_the_time_are_not_asked_for_again() -> None:
    draw = random.Random(2)
    times = [0.1 if draw.random() < 0.01 else 0.005 for _ in range(3_000)]
    reading = read([SimulatedWorker(times.__getitem__) for _ in range(8)], len(times))
    assert reading.scheduler.asked_again <= 0.02 * len(times)


@pytest.mark.parametrize("frozen_at", [0.0, 0.5, 2.0])
def test_a_frozen_worker_delays_little(frozen_at: float) -> None:
    workers = workers_of(*[0.005] * 4)
    workers[1].frozen_at = frozen_at
    reading = read(workers, 3_000)
    assert reading.longest_wait < 2.0


def test_workers_that_freeze_together_delay_little() -> None:
    workers = workers_of(*[0.005] * 4)
    workers[0].frozen_at = workers[1].frozen_at = workers[2].frozen_at = 1.0
    assert read(workers, 2_000).longest_wait < 2.5


def test_a_lost_worker_delays_by_less_than_a_turn() -> None:
    reading = SimulatedReading(workers_of(*[0.005] * 3), 2_000)
    reading._after(1.0, lambda: reading.lose(0))
    reading.run()
    assert reading.yielded == list(range(2_000))
    assert reading.longest_wait < 0.1


def test_a_worker_that_loads_for_long_is_not_waited_for() -> None:
    workers = workers_of(0.005, 0.005)
    workers.append(SimulatedWorker(lambda _: 0.005, starts_at=1.0, loads=6.0))
    assert read(workers, 4_000).longest_wait < 0.2
    assert workers[2].computed > 100


@pytest.mark.parametrize("most", [1, 2, 16])
def test_few_outstanding_elements_are_never_exceeded(most: int) -> None:
    reading = read(workers_of(*[0.001] * 4), 300, most=most)
    assert reading.most_ahead <= most


@pytest.mark.parametrize("nbytes", [100, 100_000, 3 << 20])
def test_a_slow_consumer_bounds_the_bytes(nbytes: int) -> None:
    buffer = 4 << 20
    reading = read(
        workers_of(*[0.0005] * 4),
        400,
        nbytes=lambda _: nbytes,
        consume=0.005,
        buffer_bytes=buffer,
    )
    assert reading.most_bytes <= buffer + 12 * (nbytes + 256)
    assert reading.end < 400 * 0.005 * 1.1
