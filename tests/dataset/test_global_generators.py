"""Global generators are seeded for each call by seed, epoch, node and position, if asked."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context, number


def draw(*_: Any) -> tuple[float, float]:
    return random.random(), float(np.random.random())  # noqa: NPY002 - what functions use


def bit(*_: Any) -> int:
    return int(draw()[1] < 0.5)


def read(dataset: Dataset, epoch: int = 0, most: int = 8192) -> list[Any]:
    """Read an epoch as a task with `seed_globals` does, from generators in a random state."""
    random.seed()
    np.random.seed()  # noqa: NPY002
    context = Context(
        seed=5,
        seed_globals=True,
        epoch=(epoch,),
        numbers=number(dataset.node),
        make_dataset=Dataset,
    )
    stream = open_stream(dataset.node, context)
    elements: list[Any] = []
    while chunk := stream.next_chunk(most, 1 << 20):
        elements += chunk
    stream.close()
    return elements


def generated() -> Iterator[Any]:
    for _ in range(40):
        yield draw()


def scanned(state: list[Any], _: int) -> Any:
    return [*state, draw()][-2:], (state, draw())


def nested(_: int) -> Dataset:
    return Dataset.from_tensors(draw()).repeat(2).map(lambda *value: (value, draw()))


NUMBERS = Dataset.range(40)
DATASETS = {
    "map": NUMBERS.map(draw),
    "parallel map": NUMBERS.map(draw, num_parallel_calls=4),
    "map with AUTOTUNE": NUMBERS.map(draw, num_parallel_calls=stoker.AUTOTUNE),
    "map of batches": NUMBERS.batch(3).map(draw),
    "filter": NUMBERS.filter(bit),
    "take_while": NUMBERS.take_while(lambda _: draw()[0] < 0.9),
    "flat_map": NUMBERS.flat_map(nested),
    "interleave": NUMBERS.interleave(nested, cycle_length=3),
    "parallel interleave": NUMBERS.interleave(nested, cycle_length=3, num_parallel_calls=3),
    "scan": NUMBERS.scan([], scanned),
    "group_by_window": NUMBERS.group_by_window(
        bit, lambda _, group: group.batch(9).map(draw), window_size_func=lambda _: 1 + bit()
    ),
    "rejection_resample": NUMBERS.rejection_resample(bit, [0.2, 0.8], [0.5, 0.5], seed=1),
    "from_generator": Dataset.from_generator(generated),
}


@pytest.mark.parametrize("name", DATASETS)
def test_every_function_draws_by_position(name: str) -> None:
    dataset = DATASETS[name]
    first = read(dataset)
    assert first == read(dataset) == read(dataset, most=1)
    assert first != read(dataset, epoch=1)


def test_each_position_and_node_draws_differently() -> None:
    pairs = read(NUMBERS.map(draw).map(lambda *before: (*before, *draw())))
    assert len({value for pair in pairs for value in pair}) == 160


def test_each_element_of_a_snapshot_draws_its_file(tmp_path: Path) -> None:
    drawn: list[Any] = []

    def shard_func(_: int) -> int:
        drawn.append(draw())
        return 0

    read(NUMBERS.snapshot(str(tmp_path / "one"), shard_func=shard_func))
    read(NUMBERS.snapshot(str(tmp_path / "two"), shard_func=shard_func))
    assert drawn[:40] == drawn[40:]
    assert len(set(drawn)) == 40


def test_an_object_per_worker_changes_no_draw() -> None:
    def reading(built: Callable[[], Any]) -> list[Any]:
        return read(NUMBERS.map(lambda _: (draw(), built(), draw())))

    def found() -> list[Any]:
        return reading(stoker.per_worker(lambda: [draw()]).get)

    without = reading(lambda: None)
    assert [(a, b) for a, _, b in found()] == [(a, b) for a, _, b in without]
    assert found() == found()


def test_without_the_option_no_generator_is_touched() -> None:
    dataset = NUMBERS.map(str).with_options(stoker.Options(seed=1, seed_globals=True))
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    assert len(list(dataset)) == 40
    with stoker.LocalCluster(1, threads=True) as cluster:
        assert len(list(dataset.distribute(cluster))) == 40
    assert before == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index] # noqa: NPY002
