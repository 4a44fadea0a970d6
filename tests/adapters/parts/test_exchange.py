"""Maps moved behind a shuffle change no element, error, position or random number."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker import Dataset, Options
from stoker.adapters import rank_share
from stoker.adapters.rank_share import with_maps_after_shuffle
from stoker.adapters.ranks import Rank
from stoker.adapters.reading import read_as
from stoker.compat import tf
from stoker.elements.structure import map_structure

MOST = 400


def number_of(*values):
    """Return an int that depends on all parts of an element."""
    found = 0
    for value in values:
        parts = value if isinstance(value, tuple) else [value]
        for part in parts:
            found = found * 31 + int(np.sum(part))
    return found


def plus_one(*values):
    return number_of(*values) + 1


def pair(*values):
    return number_of(*values), -1


def failing(*values):
    if number_of(*values) % 5 == 0:
        raise ValueError(f"no {values}")
    return values[0] if len(values) == 1 else values


def noisy(*values):
    drawn = stoker.random.generator().integers(1000), stoker.random.generator(7).integers(1000)
    return number_of(*values), *map(int, drawn)


SOURCES = {
    "range": lambda n: Dataset.range(3, 3 + 2 * n, 2),
    "slices": lambda n: Dataset.from_tensor_slices(np.arange(2 * n).reshape(n, 2)),
    "texts": lambda n: Dataset.from_tensor_slices([str(i) for i in range(n)]).map(int),
    "dict": lambda n: Dataset.from_tensor_slices((np.arange(n), np.arange(n) * 10)),
    "zip": lambda n: Dataset.zip(Dataset.range(n), Dataset.range(5, 5 + n)),
    "shuffled": lambda n: Dataset.range(n).shuffle(3, seed=4),
    "enumerated": lambda n: Dataset.range(n).enumerate(),
    "generator": lambda n: Dataset.from_generator(lambda: range(n)),
}
FUNCTIONS = st.sampled_from([plus_one, pair, failing, noisy])
MAPS = st.tuples(
    FUNCTIONS, st.sampled_from([None, 1, 3, stoker.AUTOTUNE]), st.sampled_from([0, 0, 2])
)
SHUFFLES = st.fixed_dictionaries(
    {
        "buffer_size": st.integers(1, 12),
        "seed": st.none() | st.integers(0, 3),
        "reshuffle_each_iteration": st.booleans(),
    }
)
BETWEEN = st.sampled_from(
    [
        lambda dataset: dataset,
        lambda dataset: dataset.take(9),
        lambda dataset: dataset.skip(2).map(noisy),
        lambda dataset: dataset.shard(2, 1).prefetch(2),
    ]
)
FURTHER = st.tuples(FUNCTIONS, BETWEEN, SHUFFLES)
LATER = st.sampled_from(
    [
        lambda dataset: dataset.map(noisy),
        lambda dataset: dataset.map(noisy).prefetch(2),
        lambda dataset: dataset.map(number_of).batch(3),
        lambda dataset: dataset.map(number_of).batch(2, drop_remainder=True),
        lambda dataset: dataset.map(number_of, num_parallel_calls=2).batch(2),
        lambda dataset: dataset.map(noisy).cache(),
        lambda dataset: dataset.repeat(2),
        lambda dataset: dataset.take(7),
        lambda dataset: dataset.skip(2),
    ]
)


@st.composite
def datasets(draw):
    """Return a dataset with maps before its shuffle."""
    dataset = SOURCES[draw(st.sampled_from(sorted(SOURCES)))](draw(st.integers(0, 15)))
    for function, parallel, ahead in draw(st.lists(MAPS, min_size=1, max_size=3)):
        dataset = dataset.map(function, num_parallel_calls=parallel)
        dataset = dataset.prefetch(ahead) if ahead else dataset
    dataset = dataset.shuffle(**draw(SHUFFLES))
    for function, between, arguments in draw(st.lists(FURTHER, max_size=2)):
        dataset = between(dataset.map(function)).shuffle(**arguments)
    for later in draw(st.lists(LATER, max_size=2)):
        dataset = later(dataset)
    return dataset.with_options(Options(seed=draw(st.integers(0, 3))))


def plain(element):
    return map_structure(lambda leaf: np.asarray(leaf).tolist(), element)


def outcomes(dataset, epoch=0, skipped=0):
    """Return the elements and the errors, in order."""
    iterator = dataset.iterator(epoch=epoch)
    if skipped:
        state = iterator.state_dict() | {"position": skipped}
        iterator.close()
        iterator = dataset.iterator(state=state)
    found = []
    with iterator:
        for _ in range(MOST):
            try:
                found.append(plain(next(iterator)))
            except StopIteration:
                return found
            except Exception as error:
                found.append((type(error), str(error)))
    raise AssertionError("the dataset does not end")


@settings(max_examples=150)
@given(datasets(), st.integers(0, 8))
def test_moved_maps_yield_the_same(dataset, skipped):
    moved = with_maps_after_shuffle(dataset)
    assert moved.cardinality() == dataset.cardinality()
    for epoch in range(2):
        expected = outcomes(dataset, epoch)
        assert outcomes(moved, epoch) == expected
        at = min(skipped, len(expected))
        assert outcomes(moved, epoch, at) == expected[at:]


@settings(max_examples=100)
@given(datasets(), st.integers(1, 3), st.integers(1, 3))
def test_parts_are_those_without_the_exchange(dataset, world_size, processes):
    def parts():
        return [
            read_as(dataset, Rank(rank, world_size), {}, process=process, processes=processes)
            for rank in range(world_size)
            for process in range(processes)
        ]

    with mock.patch.object(rank_share, "with_maps_after_shuffle", lambda dataset: dataset):
        expected = parts()
    for part, unchanged in zip(parts(), expected, strict=True):
        for epoch in range(2):
            assert outcomes(part, epoch) == outcomes(unchanged, epoch)


@pytest.fixture
def called():
    return []


@pytest.fixture
def noted(called):
    """Return a dataset whose function notes its calls."""

    def note(x):
        called.append(x)
        return x

    return lambda source: source.map(note).map(abs)


@pytest.mark.parametrize(
    ("world_size", "processes", "later", "count"),
    [
        (2, 1, lambda dataset: dataset, 40),
        (2, 1, lambda dataset: dataset.map(abs).batch(2).prefetch(1), 40),
        (1, 2, lambda dataset: dataset.batch(2), 40),
        (2, 2, lambda dataset: dataset.take(30).repeat(2), 60),
    ],
    ids=["samples", "batches of ranks", "batches of processes", "repeated"],
)
def test_each_sample_is_computed_by_one_process(called, noted, world_size, processes, later, count):
    dataset = later(noted(Dataset.range(40)).shuffle(10))
    found = 0
    for rank in range(world_size):
        for process in range(processes):
            part = read_as(
                dataset, Rank(rank, world_size), {}, process=process, processes=processes
            )
            called.clear()
            read = [x for element in part for x in np.ravel(element).tolist()]
            assert sorted(called) == sorted(read)
            found += len(read)
    assert found == count


def test_samples_of_an_endless_dataset_are_computed_once(called, noted):
    dataset = noted(Dataset.counter()).shuffle(5, seed=1)
    part = list(read_as(dataset, Rank(1, 2), {}).take(10))
    assert called == part == list(dataset.take(20))[1::2]


def test_maps_over_a_function_stay_before_the_shuffle():
    dataset = Dataset.range(3).filter(lambda _: True).map(abs).shuffle(3)
    assert with_maps_after_shuffle(dataset) is dataset


def test_moved_shuffle_keeps_its_salt():
    dataset = tf.data.Dataset.range(40).shuffle(9).map(plus_one).shuffle(40)
    assert with_maps_after_shuffle(dataset).node.kind == "moved_map"
    parts = [read_as(dataset, Rank(), {}, process=index, processes=2) for index in range(2)]
    halves = [list(part.iterator(epoch=0)) for part in parts]
    whole = [element for pair in zip(*halves, strict=True) for element in pair]
    assert whole == list(dataset.iterator(epoch=0)) != sorted(whole)
