"""headroom: the figures by a clock of the test, then real datasets, services and loaders."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.adapters.headroom import Headroom, _Loop, _measure
from stoker.errors import InvalidArgumentError, InvalidTypeError, UserFunctionError
from stoker.service import CrossTrainerCache


class Clock:
    """Time that passes only where the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Batches that each take `seconds` of the clock, after `buffered` that take none."""

    def __init__(self, clock: Clock, seconds: float, buffered: int = 0, size: int = 10**6) -> None:
        self.clock, self.seconds, self.buffered, self.size = clock, seconds, buffered, size
        self.opened = self.read = 0

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        for number in range(self.size):
            self.read += 1
            self.clock.now += 0.001 if number < self.buffered else self.seconds
            yield number


def measured(source, step, *, seconds=3.0, steps=None, warmup=1, rounds=3, wait=None) -> Headroom:
    loop = _Loop(step, wait, seconds, steps, warmup, source.clock)
    return _measure(source, loop, rounds)


def test_ratio_and_waiting_are_those_of_the_steps():
    clock = Clock()

    def step(_):
        clock.now += 0.25

    result = measured(Source(clock, 0.5), step, steps=8)
    assert result == Headroom(
        seconds_per_step=0.75,
        ideal_seconds_per_step=0.25,
        waited_per_step=0.5,
        steps=12,  # 3 s allow 4 steps, in each of three rounds
        rounds=((0.75, 0.25),) * 3,
    )
    assert (result.ratio, result.steps_per_second, result.ideal_steps_per_second) == (3, 4 / 3, 4)


def test_batches_in_buffers_are_not_measured():
    clock = Clock()

    def step(_):
        clock.now += 0.01

    result = measured(Source(clock, 0.05, buffered=300), step, steps=20)
    assert result.seconds_per_step == pytest.approx(0.06)


def test_compilation_in_the_first_steps_is_not_counted():
    clock = Clock()
    taken: list[object] = []

    def step(_):
        clock.now += 0.25 if len(taken) > 4 else 50.0
        taken.append(None)

    assert measured(Source(clock, 0.25), step, warmup=4).ratio == 2.0


def test_a_disturbed_round_does_not_decide():
    clock = Clock()
    source = Source(clock, 0.25)

    def step(_):
        clock.now += 5.0 if source.opened == 3 else 0.25

    result = measured(source, step, seconds=2.0)
    # The disturbance lasts from the second round with the dataset to the third with the ideal.
    assert result.rounds == ((0.5, 0.25), (5.25, 0.25), (0.5, 5.0))
    assert (result.ratio, result.seconds_per_step) == (2.0, 0.5)


def test_without_seconds_every_process_takes_the_same_steps():
    clock = Clock()
    taken: list[object] = []
    source = Source(clock, 0.5)
    result = measured(source, taken.append, seconds=None, steps=5, warmup=2, rounds=2)
    assert result.steps == 10
    assert len(taken) == 1 + 2 * 2 * (2 + 5)  # one step shows whether it changes its batch
    assert source.read == 1 + 2 * (2 + 5)


def test_measurement_ends_when_the_device_has_finished():
    clock = Clock()
    waited_for: list[int] = []

    def wait(result):
        waited_for.append(result)
        clock.now += 1.0

    result = measured(
        Source(clock, 0.25), lambda batch: batch, seconds=None, steps=4, warmup=1, wait=wait
    )
    assert result.seconds_per_step == 0.25 + 1.0 / 4
    assert result.ideal_seconds_per_step == 1.0 / 4
    assert waited_for[:2] == [0, 0]  # of the ideal input
    assert waited_for[2:4] == [0, 4]  # the results of the last steps


def test_short_dataset_is_read_again():
    clock = Clock()
    source = Source(clock, 0.25, size=2)
    result = measured(source, lambda _: None, seconds=None, steps=10, rounds=1)
    assert result.steps == 10
    assert source.read == 1 + 1 + 10
    assert source.opened == 1 + 6


def test_step_that_changes_its_batch_gets_the_first_one_each_time():
    dataset = stoker.Dataset.range(9).map(lambda i: {"x": np.arange(3.0), "y": np.full(1, i)})
    seen: list[Any] = []

    def step(batch):
        seen.append((batch.pop("x") * 1.0).tolist() + batch["y"].tolist())
        batch["y"] += 1

    stoker.headroom(dataset, step, seconds=None, steps=2, rounds=1, warmup=1)
    assert seen[:4] == [[0.0, 1.0, 2.0, 0.0]] * 4
    assert [each[3] for each in seen[4:]] == [0, 1, 2]  # of the dataset


def test_step_that_reads_gets_the_batch_without_a_copy():
    seen: list[Any] = []
    stoker.headroom([np.zeros(3)] * 9, seen.append, seconds=None, steps=2, rounds=1, warmup=1)
    assert len({id(batch) for batch in seen[:4]}) == 1


def test_batch_that_cannot_be_pickled_is_repeated():
    lock = threading.Lock()
    result = stoker.headroom([lock] * 9, lambda _: None, seconds=None, steps=2)
    assert result.steps == 10  # in five rounds


@pytest.mark.parametrize(
    ("ratio", "claim", "now"),
    [
        (2.4, "Training would be 2.4 times as fast if its input cost nothing", "31 ms"),
        (1.07, "Training would be 7% faster if its input cost nothing", "14 ms"),
        (1.04, "The input is not the limit", "14 ms"),
        (0.9, "The input is not the limit", "12 ms"),
    ],
)
def test_result_is_one_sentence(ratio, claim, now):
    assert str(result_of(ratio)) == f"{claim}: {now} per step now, 13 ms with an ideal input."


def test_the_repr_has_short_figures():
    assert repr(result_of(7 / 3, ideals=(0.013, 0.012))) == (
        "Headroom(ratio=2.33, seconds_per_step=0.0303, ideal_seconds_per_step=0.013, "
        "waited_per_step=0, steps=1, rounds=2)"
    )


def result_of(ratio: float, ideal: float = 0.013, ideals: tuple[float, ...] = ()) -> Headroom:
    return Headroom(
        seconds_per_step=ideal * ratio,
        ideal_seconds_per_step=ideal,
        waited_per_step=0.0,
        steps=1,
        rounds=tuple((ideal * ratio, each) for each in ideals or (ideal,)),
    )


def test_ideal_steps_that_differ_are_reported():
    text = str(result_of(2.0, ideals=(0.013, 0.03, 0.012)))
    assert "With the same ideal input, steps took from 12 ms to 30 ms: other programs" in text
    assert "other programs" not in str(result_of(2.0, ideals=(0.013, 0.015, 0.012)))


@pytest.mark.parametrize(
    ("ideal", "text"),
    [
        (2.0, "2.00 s"),
        (0.0042, "4.20 ms"),
        (0.013, "13 ms"),
        (3.2e-6, "3.20 µs"),
        (1e-9, "0.00 µs"),
    ],
)
def test_durations_are_in_readable_units(ideal, text):
    assert f" {text} with an ideal input" in str(result_of(1.0, ideal))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dataset": []}, InvalidArgumentError, "`dataset` must have at least one batch"),
        ({"dataset": stoker.Dataset.range(0)}, InvalidArgumentError, "at least one batch"),
        ({"dataset": iter([1, 2])}, InvalidTypeError, "iterable anew.*list_iterator"),
        ({"dataset": 7}, InvalidTypeError, "`dataset` must be iterable; got 7"),
        ({"step": None}, InvalidTypeError, "`step` must be a function; got None"),
        ({"wait": 1}, InvalidTypeError, "`wait` must be a function; got 1"),
        ({"seconds": None}, InvalidArgumentError, "`seconds` or `steps` must be given"),
        ({"seconds": 0}, InvalidArgumentError, "`seconds` must be a positive number or None"),
        ({"seconds": "1"}, InvalidTypeError, "`seconds` must be a positive number or None"),
        ({"steps": 0}, InvalidArgumentError, "`steps` must be an int of at least 1"),
        ({"rounds": 0}, InvalidArgumentError, "`rounds` must be an int of at least 1"),
        ({"warmup": 0}, InvalidArgumentError, "`warmup` must be an int of at least 1"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    given = {"dataset": [1], "step": lambda _: None, **arguments}
    with pytest.raises(error, match=message):
        stoker.headroom(given.pop("dataset"), given.pop("step"), **given)


def test_error_of_the_step_is_raised_and_the_dataset_closed():
    taken: list[object] = []

    def step(batch):
        taken.append(batch)
        if len(taken) == 12:
            raise ZeroDivisionError

    dataset = stoker.Dataset.range(100).map(lambda x: x, num_parallel_calls=2).prefetch(2)
    with pytest.raises(ZeroDivisionError):
        stoker.headroom(dataset, step, seconds=None, steps=5)


def test_error_of_the_dataset_is_raised():
    dataset = stoker.Dataset.range(3).map(lambda x: 1 // x)
    with pytest.raises(ZeroDivisionError):
        stoker.headroom(dataset, lambda _: None, seconds=None, steps=5)


def test_training_afterwards_begins_with_its_first_epoch():
    dataset = stoker.Dataset.range(50).shuffle(50, seed=1)
    first = list(dataset.iterator(epoch=0))
    stoker.headroom(dataset, lambda _: None, seconds=None, steps=5)
    assert list(dataset) == first


def test_full_cache_is_read_as_such():
    calls: list[int] = []

    def load(i: int) -> int:
        calls.append(i)
        return i

    dataset = stoker.Dataset.range(4).map(load).cache()
    list(dataset)
    stoker.headroom(dataset, lambda _: None, seconds=None, steps=5)
    assert len(calls) == 4


def test_dataset_of_a_service_is_measured_and_left_for_the_training():
    def slow(i):
        time.sleep(0.005)
        return i

    with stoker.LocalCluster(num_workers=1, threads=True) as cluster:
        dataset = stoker.Dataset.range(40).map(slow).distribute(cluster)
        result = stoker.headroom(dataset, lambda _: None, seconds=0.2, rounds=1)
        assert result.seconds_per_step > 0.001  # on a busy machine half may be ready before
        assert result.ratio > 10
        assert sorted(dataset) == list(range(40))


def test_error_of_a_worker_is_raised():
    with stoker.LocalCluster(num_workers=1, threads=True) as cluster:
        dataset = stoker.Dataset.range(3).map(lambda x: 1 // x).distribute(cluster)
        with pytest.raises(UserFunctionError):
            stoker.headroom(dataset, lambda _: None, seconds=None, steps=5)


def test_consumers_of_a_coordinated_read_take_the_same_steps():
    results = {}
    with stoker.LocalCluster(num_workers=1, threads=True) as cluster:
        parts = [
            stoker.Dataset.range(1000)
            .repeat()
            .distribute(
                cluster, "parallel_epochs", job_name="job", consumer_index=index, num_consumers=2
            )
            for index in range(2)
        ]
        with pytest.raises(InvalidArgumentError, match="seconds=None and the same `steps`"):
            stoker.headroom(parts[0], lambda _: None)

        def measure(index: int) -> None:
            results[index] = stoker.headroom(
                parts[index], lambda _: None, seconds=None, steps=20, rounds=2
            )

        threads = [threading.Thread(target=measure, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [results[index].steps for index in range(2)] == [40, 40]


def test_cross_trainer_cache_is_refused():
    with stoker.LocalCluster(num_workers=0) as cluster:
        dataset = (
            stoker.Dataset.range(3)
            .repeat()
            .distribute(
                cluster,
                "parallel_epochs",
                job_name="job",
                cross_trainer_cache=CrossTrainerCache("trainer"),
            )
        )
        with pytest.raises(InvalidArgumentError, match="without `cross_trainer_cache`"):
            stoker.headroom(dataset, lambda _: None)
