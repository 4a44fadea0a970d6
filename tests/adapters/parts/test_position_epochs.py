"""Epochs of ranks over a service in "deterministic_epoch": those of the local dataset, divided."""

import functools
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import stoker
from stoker import Dataset, Options
from stoker.adapters import reading
from stoker.adapters.epochs import Epochs
from stoker.adapters.ranks import Rank
from stoker.compat import tf
from stoker.errors import InvalidArgumentError
from stoker.service import from_dataset_id, register_dataset
from tests.adapters.parts.test_epochs import Ranks, begun, epochs, read
from tests.serving import Service

MODE = "deterministic_epoch"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(2) as running:
        yield running


@pytest.fixture(scope="module")
def other_service() -> Iterator[Service]:
    with Service(1) as running:
        yield running


class Mute(Ranks):
    """A rank that cannot communicate with the others."""

    def agree(self):
        def never(values):
            raise AssertionError(f"{values} were to be agreed on")

        return never


def noisy(x: int) -> int:
    return x * 1000 + int(stoker.random.generator().integers(1000))


def plain(element: Any) -> Any:
    return element.tolist() if hasattr(element, "tolist") else element


def failing(x: int) -> int:
    if x % 5 == 3:
        raise ValueError(x)
    return x


def numbers(count: int) -> Dataset:
    return Dataset.range(count).shuffle(5).map(noisy)


def over(dataset: Dataset, service: Service, **options: Any) -> Dataset:
    return dataset.distribute(service.target, MODE, **options)


def ranks_of(dataset: Any, world_size: int, **options: Any) -> list[Epochs]:
    """Return the loaders of all ranks, each of a dataset of its own."""
    return [
        epochs(dataset(), Mute(Rank(rank, world_size)), **options) for rank in range(world_size)
    ]


def whole_epoch(dataset: Dataset, state: dict[str, Any]) -> list[Any]:
    """Return the local epoch of a loader's state."""
    dataset._adopt_seeds(state["seed"], state["salts"])
    return [int(x) for x in dataset.iterator(epoch=state["epoch"])]


def steps_of(parts: list[Epochs], count: int) -> list[int]:
    """Return the elements of the next steps of all ranks, in the order of their positions."""
    readers = [begun(part, 0) for part in parts]
    found = [int(next(reader)) for _ in range(count) for reader in readers]
    for reader in readers:
        reader.close()
    return found


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_of_ranks_read_the_local_epoch_in_turn(
    service: Service, world_size: int, processes: int
) -> None:
    for count in (0, 1, 5, 12, 25):
        dataset = over(numbers(count), service)
        reading.tie_draws(dataset)
        whole = [int(x) for x in numbers(count).with_options(Options(seed=0)).iterator(epoch=0)]
        complete = count - count % world_size
        for rank in range(world_size):
            place = Rank(rank, world_size)
            copies = [
                reading.read_as(dataset, place, {}, process=k, processes=processes)
                for k in range(processes)
            ]
            expected = whole[:complete][rank::world_size]
            for k, copy in enumerate(copies):
                found = [int(x) for x in copy.iterator(epoch=0)]
                assert found == expected[k::processes]
                assert len(copy) == copy.cardinality() == len(found)
            assert len(epochs(dataset, Mute(place))) == len(expected)


@pytest.mark.parametrize("first", [1, 2, 3, 4])
@pytest.mark.parametrize("second", [1, 2, 3, 4])
def test_a_state_at_any_step_continues_with_other_ranks(
    service: Service, other_service: Service, first: int, second: int
) -> None:
    count = 13
    for steps in range(count // first + 1):
        parts = ranks_of(lambda: over(numbers(count), service), first)
        found = steps_of(parts, steps)
        states = [json.loads(json.dumps(part.state_dict())) for part in parts]
        assert states == [states[0]] * first
        if states[0]["epoch"] == 1:  # all steps of the epoch were read
            assert (steps, states[0]["iterator"]) == (count // first, None)
            found = []
        expected = whole_epoch(numbers(count), states[0])
        for world_size, place in ((second, other_service), (first, service)):
            state = states[0]
            parts = ranks_of(functools.partial(over, numbers(count), place), world_size)
            for part in parts:
                part.load_state_dict(state)
            left = (count - len(found)) // world_size
            found += steps_of(parts, min(2, left))
            states = [json.loads(json.dumps(part.state_dict())) for part in parts]
            assert states == [states[0]] * world_size
            assert len(json.dumps(states[0])) < 700
            assert found == expected[: len(found)]
            # A state after the last step is that of the next epoch.
            assert states[0]["epoch"] - state["epoch"] == (0 < left <= 2)
            if left <= 2:
                break
        else:
            local = epochs(numbers(count))  # and then without a service
            local.load_state_dict(states[0])
            assert found + read(local) == expected


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("salted", [False, True])
def test_states_of_local_and_distributed_datasets_are_equal(
    service: Service, batch_size: int | None, salted: bool
) -> None:
    def make():
        source = (tf.data.Dataset if salted else Dataset).range(22)
        return source.shuffle(22).map(failing)

    def outcomes(part: Epochs, count: int) -> list[Any]:
        iterator, progress = part.start()
        found: list[Any] = []
        while len(found) < count:
            try:
                found.append(plain(next(iterator)))
            except StopIteration:
                break
            except (ValueError, stoker.errors.UserFunctionError):
                found.append("error")
            progress.reach(iterator.position())
        iterator.close()
        return found

    options = {"batch_size": batch_size, "prefetch": 2}
    local, remote = epochs(make(), **options), epochs(over(make(), service), **options)
    whole = outcomes(local, 99)
    assert "error" in whole
    for steps in range(len(whole)):
        local.set_next(0)
        outcomes(local, steps)
        state = json.loads(json.dumps(local.state_dict()))
        remote.load_state_dict(state)
        assert remote.state_dict() == state
        middle = outcomes(remote, 1)
        if steps == len(whole) - 1:
            assert remote.state_dict()["iterator"] is None
        again = epochs(make(), **options)
        again.load_state_dict(json.loads(json.dumps(remote.state_dict())))
        if steps < len(whole) - 1:
            assert middle + outcomes(again, 99) == whole[steps:]
        else:
            local.set_next(1)
            assert outcomes(again, 99) == outcomes(local, 99)


def test_a_local_state_continues_with_several_ranks(service: Service) -> None:
    local = epochs(numbers(20))
    begun(local, 5).close()
    state = local.state_dict()
    expected = whole_epoch(numbers(20), state)
    parts = ranks_of(lambda: over(numbers(20), service), 3)
    for part in parts:
        part.load_state_dict(state)
    assert steps_of(parts, 5) == expected[5:]
    # Later epochs have the seed of the state on all ranks.
    assert sorted({x // 1000 for x in steps_of(parts, 6)}) == sorted(
        x // 1000 for x in whole_epoch(numbers(20), state | {"epoch": 1})[:18]
    )


def test_batches_of_a_loader_go_on_at_the_samples_of_all_ranks(service: Service) -> None:
    parts = ranks_of(lambda: over(Dataset.range(40), service), 2, batch_size=3)
    for part in parts:
        iterator, progress = part.start()
        next(iterator)
        progress.reach(1)
        iterator.close()
    state = parts[0].state_dict()
    resumed = ranks_of(lambda: over(Dataset.range(40), service), 3, batch_size=3)
    found = []
    for part in resumed:
        part.load_state_dict(state)
        iterator, progress = part.start()
        found.append([batch.tolist() for batch in iterator])
    # Two ranks have read three samples each.
    left = [list(range(rank, 40 - 40 % 3 + 1, 3))[:11] for rank in (6, 7, 8)]
    assert found == [[own[at : at + 3] for at in range(0, 11, 3)] for own in left]


@pytest.mark.parametrize("salted", [False, True])
def test_ranks_that_drew_other_seeds_divide_one_epoch(service: Service, salted: bool) -> None:
    def make():
        if not salted:
            return over(Dataset.range(30).shuffle(30), service)
        tf.data.Dataset.range(2).shuffle(2)  # each shuffle draws another salt
        return over(tf.data.Dataset.range(30).shuffle(30), service)

    parts = ranks_of(make, 2)
    begun_by_user = [part._source.iterator(epoch=0) for part in parts]
    for iterator in begun_by_user:  # draws the seed of the dataset
        iterator.close()
    assert sorted(read(parts[0]) + read(parts[1])) == list(range(30))


def test_ranks_of_mixed_datasets_divide_the_epoch() -> None:
    common: dict[int, list[str]] = {}
    with Service(2) as service:

        def make():
            counts = Dataset.range(10**6).distribute(service.target, "distributed_epoch")
            served = over(Dataset.range(30).shuffle(30), service)
            return Dataset.zip((served, counts)).map(lambda x, _: x)

        parts = [epochs(make(), Ranks(Rank(rank, 2), common)) for rank in range(2)]
        with pytest.raises(TypeError, match="until they are read"):
            len(parts[0])
        readers = [begun(part, 0) for part in parts]
        found = [int(next(reader)) for _ in range(15) for reader in readers]
        for reader in readers:
            reader.close()
    assert sorted(found) == list(range(30))


def test_ranks_take_a_given_seed_of_rank_0(service: Service) -> None:
    common: dict[int, list[str]] = {}
    parts = [
        epochs(over(numbers(10), service), Ranks(Rank(rank, 2), common), seed=7 + rank)
        for rank in range(2)
    ]
    expected = [int(x) for x in numbers(10).with_options(Options(seed=7)).iterator(epoch=0)]
    assert [read(parts[0]), read(parts[1])] == [expected[::2], expected[1::2]]


def test_ranks_share_the_tasks_of_an_epoch(service: Service) -> None:
    parts = ranks_of(lambda: over(numbers(400), service), 3)
    readers = [begun(part, 1) for part in parts]
    [iteration] = [x for x in service.state.iterations.values() if x.clients]
    assert len(iteration.clients) == 3
    assert iteration.job.added.job.startswith("positions:")
    for reader in readers:
        reader.close()


def test_loaders_of_one_dataset_each_read_all_at_the_same_time(service: Service) -> None:
    dataset = over(numbers(30), service)
    expected = whole_epoch(numbers(30), epochs(dataset).state_dict())
    readers = [begun(epochs(dataset), 0) for _ in range(2)]
    pairs = [[int(x) for x in pair] for pair in zip(*readers, strict=True)]
    assert pairs == [[x, x] for x in expected]


def test_a_consumer_of_the_user_is_divided_among_its_processes(service: Service) -> None:
    dataset = over(Dataset.range(20), service, num_consumers=3, consumer_index=1)
    copies = [reading.read_as(dataset, Rank(1, 3), {}, process=k, processes=2) for k in range(2)]
    assert [[int(x) for x in copy] for copy in copies] == [[1, 7, 13, 19], [4, 10, 16]]
    alone = reading.read_as(dataset, Rank(), {})
    assert [int(x) for x in alone] == list(range(1, 20, 3))


@pytest.mark.parametrize("seeds_globals", [False, True])
def test_the_seed_of_a_loader_reaches_a_registered_dataset(
    service: Service, seeds_globals: bool
) -> None:
    framework = Ranks()
    framework.seeds_globals = seeds_globals
    dataset_id = register_dataset(service.target, numbers(20))
    dataset = from_dataset_id(MODE, service.target, dataset_id)
    expected = [int(x) for x in numbers(20).with_options(Options(seed=3)).iterator(epoch=0)]
    assert read(epochs(dataset, framework, seed=3)) == expected
    assert read(epochs(over(numbers(20), service), framework, seed=3)) == expected


def test_a_state_of_a_mode_without_positions_begins_the_epoch_again(service: Service) -> None:
    dynamic = epochs(Dataset.range(9).distribute(service.target, "distributed_epoch"))
    begun(dynamic, 2).close()
    with pytest.warns(UserWarning, match="within epoch 0, which cannot be continued"):
        state = dynamic.state_dict()
    part = epochs(over(Dataset.range(9), service))
    with pytest.warns(UserWarning, match="starts again from its beginning"):
        part.load_state_dict(state)
    assert read(part) == list(range(9))


def test_states_within_an_epoch_do_not_warn(service: Service) -> None:
    part = epochs(over(Dataset.range(9), service))
    begun(part, 2).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = part.state_dict()
        part.load_state_dict(state)
    assert read(part) == list(range(2, 9))


def test_the_state_of_local_ranks_needs_local_ranks(service: Service) -> None:
    local = epochs(numbers(20), Ranks(Rank(0, 2)))
    begun(local, 3).close()
    part = epochs(over(numbers(20), service), Ranks(Rank(0, 2)))
    part.load_state_dict(local.state_dict())
    with pytest.raises(InvalidArgumentError, match="rank_share"):
        part.start()


def test_endless_epochs_have_no_last_step(service: Service) -> None:
    parts = ranks_of(lambda: over(Dataset.range(5).repeat(), service), 2)
    with pytest.raises(TypeError, match="infinite"):
        len(parts[0])
    assert steps_of(parts, 6) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    state = parts[1].state_dict()
    resumed = ranks_of(lambda: over(Dataset.range(5).repeat(), service), 3)
    for part in resumed:
        part.load_state_dict(state)
    assert steps_of(resumed, 2) == [2, 3, 4, 0, 1, 2]
