"""Batches that leave the pipeline are made in the memory the caller gives, and no others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stoker import Dataset
from tests.dataset.verbs import opened

_Build = Callable[[Dataset], Dataset]


class Arena:
    """Memory another process could write to."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self.made.append(np.empty(shape, dtype))
        return self.made[-1]

    def holds(self, array: Any) -> bool:
        return any(np.shares_memory(array, made) for made in self.made)


def rows() -> Dataset:
    return Dataset.range(12).map(lambda x: np.full(1000, x))


def read(dataset: Dataset, arena: Arena) -> list[Any]:
    stream = opened(dataset, allocate=arena.allocate)
    found = []
    while chunk := stream.next_chunk(1, 1):
        found += chunk
    stream.close()
    return found


MAKERS: dict[str, _Build] = {
    "batch": lambda d: d.batch(4),
    "map and batch": lambda d: d.map(lambda x: x, num_parallel_calls=2).batch(4),
    "padded_batch": lambda d: d.padded_batch(4),
    "rebatch": lambda d: d.batch(3).rebatch(4),
}
PASSING_ON: dict[str, _Build] = {
    "nothing": lambda d: d,
    "prefetch": lambda d: d.prefetch(2),
    "take": lambda d: d.skip(0).take(3),
    "shuffle": lambda d: d.shuffle(3, seed=1),
    "repeat": lambda d: d.repeat(2),
    "concatenate": lambda d: d.concatenate(d),
    "shard": lambda d: d.shard(2, 1),
    "ignore_errors": lambda d: d.ignore_errors(),
    "sample": lambda d: Dataset.sample_from_datasets([d, d]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("behind", PASSING_ON.values(), ids=PASSING_ON)
def test_the_last_batches_are_made_in_the_given_memory(make: _Build, behind: _Build) -> None:
    arena = Arena()
    batches = read(behind(make(rows())), arena)
    assert batches
    assert all(arena.holds(batch) for batch in batches)


def test_batches_inside_tuples_are_made_there_too() -> None:
    arena = Arena()
    zipped = Dataset.zip((rows().batch(4), rows().batch(4))).enumerate()
    for _, (first, second) in read(zipped, arena):
        assert arena.holds(first)
        assert arena.holds(second)
        assert not np.shares_memory(first, second)


HOLDING: dict[str, _Build] = {
    "cache": lambda d: d.cache().repeat(2),
    "map": lambda d: d.map(lambda x: x),
    "filter": lambda d: d.filter(lambda x: True),
    "scan": lambda d: d.scan(0, lambda state, x: (x, x)),
    "take_while": lambda d: d.take_while(lambda x: True),
    "flat_map": lambda d: d.flat_map(lambda x: Dataset.from_tensors(x).repeat(2)),
    "flat_map of batches": lambda d: Dataset.range(2).flat_map(lambda i: rows().batch(4)),
    "unbatch": lambda d: d.unbatch(),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("behind", HOLDING.values(), ids=HOLDING)
def test_elements_that_may_be_kept_use_ordinary_memory(make: _Build, behind: _Build) -> None:
    arena = Arena()
    elements = read(behind(make(rows())), arena)
    assert elements
    assert not arena.made


def test_only_the_last_of_several_batches_is() -> None:
    arena = Arena()
    batches = read(rows().batch(2).map(lambda x: x).batch(3).prefetch(1), arena)
    assert [batch.shape for batch in batches] == [(3, 2, 1000)] * 2
    assert len(arena.made) == 2
