"""Deterministic epochs over a service equal the epochs of the local dataset."""

import collections
import contextlib
import json
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.service import from_dataset_id, register_dataset
from tests.serving import Service, outcomes, read

MODE = "deterministic_epoch"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(2) as running:
        yield running


def served(dataset: stoker.Dataset, service: Service, **options: Any) -> stoker.Dataset:
    return dataset.distribute(service.target, processing_mode=MODE, **options)


def _square(x: int) -> int:
    return x * x


def _fails_at_7(x: int) -> int:
    if x % 10 == 7:
        raise ValueError(x)
    return x


def _noisy(x: int) -> float:
    return x + stoker.random.generator().normal()


def _length(x: int) -> Any:
    return np.arange(x % 5)


def _pair(x: int) -> dict[str, Any]:
    return {"x": np.full((3, 2), x, np.float32), "name": f"element {x}"}


PIPELINES: dict[str, Callable[[], stoker.Dataset]] = {
    "range": lambda: stoker.Dataset.range(100),
    "arrays": lambda: stoker.Dataset.from_tensor_slices(np.arange(60.0).reshape(20, 3)),
    "shuffle": lambda: stoker.Dataset.range(200).shuffle(50).map(_square).batch(7),
    "map before shuffle": lambda: stoker.Dataset.range(100).map(_noisy).shuffle(30).batch(8),
    "draws": lambda: stoker.Dataset.range(50).map(_noisy, num_parallel_calls=3).batch(4),
    "errors": lambda: stoker.Dataset.range(40).map(_fails_at_7),
    "errors in batches": lambda: stoker.Dataset.range(43).map(_fails_at_7).batch(4),
    "structures": lambda: stoker.Dataset.range(30).map(_pair).batch(4, drop_remainder=True),
    "padded": lambda: stoker.Dataset.range(33).map(_length).padded_batch(4).prefetch(2),
    "ragged": lambda: stoker.Dataset.range(33).map(_length).ragged_batch(4),
    "repeat": lambda: stoker.Dataset.range(10).shuffle(10).repeat(5).map(_square),
    "take and skip": lambda: stoker.Dataset.range(90).map(_square).skip(10).batch(8).take(6),
    "shard": lambda: stoker.Dataset.range(90).shard(3, 1).enumerate().batch(4),
    "zip": lambda: stoker.Dataset.zip(
        (stoker.Dataset.range(30), stoker.Dataset.from_tensor_slices(np.arange(40.0)))
    ).batch(4),
    "random": lambda: stoker.Dataset.random(seed=3).take(50).batch(4),
    "from_tensors": lambda: stoker.Dataset.from_tensors((1, "a")),
    "empty": lambda: stoker.Dataset.range(0).map(_square),
}


def plain(found: list[Any]) -> list[Any]:
    """Return elements and errors as values that compare."""

    def of(item: Any) -> Any:
        if isinstance(item, stoker.errors.UserFunctionError):
            return ("error", item.exception, item.element)
        if isinstance(item, ValueError):
            return ("error", "ValueError", _element_of(item))
        if isinstance(item, dict):
            return {name: of(value) for name, value in item.items()}
        if isinstance(item, tuple | list):
            return [of(value) for value in item]
        if isinstance(item, stoker.RaggedArray):
            return [row.tolist() for row in item]
        if isinstance(item, np.ndarray):
            return (str(item.dtype), item.tolist())
        return item

    return [of(item) for item in found]


def _element_of(error: ValueError) -> Any:
    notes = " ".join(getattr(error, "__notes__", ()))
    return next((int(word) for word in notes.replace(",", " ").split() if word.isdigit()), None)


@pytest.mark.parametrize("name", PIPELINES)
def test_served_epochs_equal_local_epochs(service: Service, name: str) -> None:
    dataset = PIPELINES[name]()
    remote = served(dataset, service)
    for epoch in (0, 3):
        expected = outcomes(dataset.iterator(epoch=epoch))
        found = outcomes(remote.iterator(epoch=epoch))
        assert _kinds(plain(found)) == _kinds(plain(expected))
    assert remote.cardinality() == dataset.cardinality()
    assert remote.element_spec == dataset.element_spec


def _kinds(found: list[Any]) -> list[Any]:
    # Locally the exception itself is raised, over a service its record: equal in kind.
    return [x[:2] if isinstance(x, tuple) and x[:1] == ("error",) else x for x in found]


def test_errors_name_the_position_in_the_epoch(service: Service) -> None:
    remote = served(stoker.Dataset.range(40).shuffle(40, seed=1).map(_fails_at_7), service)
    found = outcomes(remote.iterator(epoch=0))
    errors = [(k, x) for k, x in enumerate(found) if isinstance(x, Exception)]
    assert len(errors) == 4
    for position, error in errors:
        assert isinstance(error, stoker.errors.UserFunctionError)
        assert error.element == position


@pytest.mark.parametrize("at", [0, 1, 5, 11, 12])
def test_a_state_continues_anywhere(service: Service, at: int) -> None:
    dataset = stoker.Dataset.range(89).shuffle(20).map(_noisy).batch(8)
    remote = served(dataset, service)
    expected = plain(read(dataset.iterator(epoch=1)))
    iterator = remote.iterator(epoch=1)
    begun = read(iterator, at)
    state = json.loads(json.dumps(iterator.state_dict()))
    iterator.close()
    assert len(json.dumps(state)) < 400
    assert plain([*begun, *read(remote.iterator(state=state))]) == expected
    assert plain([*begun, *read(dataset.iterator(state=state))]) == expected
    with Service(1) as other:
        assert plain([*begun, *read(served(dataset, other).iterator(state=state))]) == expected


def test_a_local_state_continues_over_the_service(service: Service) -> None:
    dataset = stoker.Dataset.range(50).map(_noisy).shuffle(10)
    iterator = dataset.iterator(epoch=2)
    begun = read(iterator, 17)
    remote = served(stoker.Dataset.range(50).map(_noisy).shuffle(10), service)
    resumed = read(remote.iterator(state=iterator.state_dict()))
    assert [*begun, *resumed] == read(dataset.iterator(epoch=2))


def test_an_epoch_is_resumed_twice(service: Service) -> None:
    remote = served(stoker.Dataset.range(60).shuffle(60).map(_square), service)
    expected = read(remote.iterator(epoch=0))
    found, state = [], None
    for _ in range(3):
        iterator = remote.iterator(epoch=0) if state is None else remote.iterator(state=state)
        found += read(iterator, 15)
        state = iterator.state_dict()
        iterator.close()
    assert [*found, *read(remote.iterator(state=state))] == expected


def test_the_position_of_a_state_may_be_raised(service: Service) -> None:
    remote = served(stoker.Dataset.range(30).map(_square), service)
    iterator = remote.iterator(epoch=0)
    read(iterator, 3)
    state = iterator.state_dict()
    iterator.close()
    state["position"] += 4
    assert read(remote.iterator(state=state), 2) == [49, 64]


@pytest.mark.parametrize("consumers", [1, 2, 3, 8])
def test_consumers_get_their_strides(service: Service, consumers: int) -> None:
    dataset = stoker.Dataset.range(101).shuffle(50, seed=4).map(_square).batch(2)
    expected = [batch.tolist() for batch in dataset.iterator(epoch=0)]
    parts = [
        served(dataset, service, consumer_index=i, num_consumers=consumers)
        for i in range(consumers)
    ]
    iterators = [part.iterator(epoch=0) for part in parts]
    found = [[batch.tolist() for batch in read(iterator)] for iterator in iterators]
    assert found == [expected[i::consumers] for i in range(consumers)]
    assert [len(part) for part in parts] == list(map(len, found))


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 3), (1, 4), (3, 1)])
def test_other_numbers_of_consumers_continue(service: Service, before: int, after: int) -> None:
    dataset = stoker.Dataset.range(100).shuffle(30, seed=4).map(_square)
    expected = read(dataset.iterator(epoch=0))
    states, found = [], []
    for i in range(before):
        part = served(dataset, service, consumer_index=i, num_consumers=before)
        iterator = part.iterator(epoch=0)
        found.append(read(iterator, 7))
        states.append(iterator.state_dict())
        iterator.close()
    assert [found[k % before][k // before] for k in range(7 * before)] == expected[: 7 * before]
    rest = []
    for i in range(after):
        part = served(dataset, service, consumer_index=i, num_consumers=after)
        rest.append(read(part.iterator(state=states[i % before])))
    begin = 7 * before
    assert rest == [expected[begin + i :: after] for i in range(after)]


def test_a_short_step_is_dropped_if_asked(service: Service) -> None:
    parts = [
        served(
            stoker.Dataset.range(11),
            service,
            consumer_index=i,
            num_consumers=4,
            drop_short_step=True,
        )
        for i in range(4)
    ]
    assert [read(part.iterator(epoch=0)) for part in parts] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert {len(part) for part in parts} == {2}


def test_two_readers_of_one_index_both_get_it(service: Service) -> None:
    options = {"consumer_index": 1, "num_consumers": 2, "job_name": "tensor-parallel"}
    parts = [served(stoker.Dataset.range(20), service, **options) for _ in range(2)]
    iterators = [part.iterator(epoch=0) for part in parts]
    pairs = [(next(one), next(other)) for one, other in [iterators] * 10]
    assert pairs == [(x, x) for x in range(1, 20, 2)]


def _read_one(target: str) -> None:
    dataset = stoker.Dataset.range(200_000).map(_square)
    dataset = dataset.distribute(target, processing_mode=MODE, job_name="replaced")
    assert read(dataset.iterator(epoch=0), 1) == [0]


def test_a_reader_of_another_process_replaces_an_older_one(service: Service) -> None:
    dataset = stoker.Dataset.range(200_000).map(_square)
    older = served(dataset, service, job_name="replaced", buffer_bytes=10_000).iterator(epoch=0)
    next(older)
    newer = multiprocessing.get_context("spawn").Process(target=_read_one, args=(service.target,))
    newer.start()
    newer.join(30)
    assert newer.exitcode == 0
    newer.close()
    with pytest.raises(stoker.errors.UnavailableError, match="num_consumers"):
        collections.deque(older, maxlen=0)


def test_registered_datasets_are_read_by_position(service: Service) -> None:
    dataset = stoker.Dataset.range(30).shuffle(30, seed=2).map(_square).batch(4)
    dataset_id = register_dataset(service.target, dataset)
    remote = from_dataset_id(MODE, service.target, dataset_id)
    assert plain(read(remote.iterator(epoch=0))) == plain(read(dataset.iterator(epoch=0)))
    assert len(remote) == 8


def test_methods_after_distribute_equal_the_local_ones(service: Service) -> None:
    def after(dataset: stoker.Dataset) -> stoker.Dataset:
        return dataset.map(_noisy).shuffle(10).batch(4).prefetch(1)

    dataset = stoker.Dataset.range(50).shuffle(50).map(_square)
    local, remote = after(dataset), after(served(dataset, service))
    assert plain(read(remote.iterator(epoch=1))) == plain(read(local.iterator(epoch=1)))
    iterator = remote.iterator(epoch=1)
    begun = read(iterator, 5)
    resumed = read(local.iterator(state=iterator.state_dict()))
    assert plain([*begun, *resumed]) == plain(read(local.iterator(epoch=1)))


def test_each_pass_of_repeat_equals_the_local_one(service: Service) -> None:
    dataset = stoker.Dataset.range(20).shuffle(20).map(_noisy)
    local, remote = dataset.repeat(3), served(dataset, service).repeat(3)
    assert read(remote.iterator(epoch=0)) == read(local.iterator(epoch=0))


def test_infinite_datasets_are_read_by_position(service: Service) -> None:
    dataset = stoker.Dataset.range(10).shuffle(10).repeat().map(_square).batch(4)
    remote = served(dataset, service)
    assert remote.cardinality() == stoker.INFINITE_CARDINALITY
    found = read(remote.iterator(epoch=0), 40)
    assert plain(found) == plain(read(dataset.iterator(epoch=0), 40))


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_one_outstanding_element_is_enough_for_four_workers(limit: int) -> None:
    with Service(4) as running:
        remote = served(
            stoker.Dataset.range(200).map(_square), running, max_outstanding_requests=limit
        )
        assert read(remote) == [x * x for x in range(200)]


def test_elements_larger_than_the_buffer_arrive(service: Service) -> None:
    dataset = stoker.Dataset.range(40).map(lambda x: np.full(1 << 20, x % 100, np.uint8))
    remote = served(dataset, service, buffer_bytes=1 << 18)
    assert [int(x[0]) for x in read(remote)] == [x % 100 for x in range(40)]


def test_a_paused_reader_does_not_stop_others(service: Service) -> None:
    dataset = stoker.Dataset.range(3000).map(lambda x: np.full(100_000, x % 100, np.uint8))
    parts = [served(dataset, service, consumer_index=i, num_consumers=2) for i in range(2)]
    paused = parts[0].iterator(epoch=0)
    next(paused)
    with contextlib.closing(parts[1].iterator(epoch=0)) as iterator:
        assert len(read(iterator)) == 1500
    assert len(read(paused)) == 1499


def test_datasets_that_are_not_counted_are_refused(service: Service) -> None:
    for dataset, name in [
        (stoker.Dataset.range(10).filter(lambda x: x % 2), "filter"),
        (stoker.Dataset.from_generator(lambda: iter([1])), "from_generator"),
        (stoker.Dataset.range(10).map(_square).unbatch(), "unbatch"),
    ]:
        with pytest.raises(stoker.errors.UnimplementedError, match=name):
            served(dataset, service)


def test_nothing_counts_as_lost(service: Service) -> None:
    with served(stoker.Dataset.range(100), service, on_loss="raise").iterator() as iterator:
        read(iterator, 50)
        stats = iterator.stats()
    assert all(not stats.get(name) for name in ("tasks_lost", "splits_lost", "elements_lost"))
