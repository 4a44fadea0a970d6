"""Errors keep no iterator alive: it is freed with its last reference, without a collection."""

import gc
import time
import weakref

import numpy as np
import pytest

from stoker import Dataset

DEADLINE = 5


def inverse(i):
    return 1 // (i - 1)


def failing():
    return Dataset.range(6).map(inverse)


def unequal(i):
    return np.zeros(1 + i % 2)


PIPELINES = {
    "map": failing,
    "parallel map": lambda: Dataset.range(6).map(inverse, num_parallel_calls=2),
    "batch": lambda: failing().batch(2),
    "batch of unequal shapes": lambda: Dataset.range(6).map(unequal).batch(2),
    "map and batch": lambda: Dataset.range(6).map(inverse, num_parallel_calls=2).batch(2),
    "padded batch": lambda: Dataset.range(6).map(lambda i: [inverse(i)]).padded_batch(2),
    "ragged batch": lambda: Dataset.range(6).map(lambda i: [inverse(i)]).ragged_batch(2),
    "filter": lambda: Dataset.range(6).filter(inverse),
    "shuffle": lambda: failing().shuffle(3, seed=1),
    "skipped shuffle": lambda: failing().shuffle(3, seed=1).skip(1),
    "shard": lambda: Dataset.range(6).map(inverse).shard(1, 0).batch(4),
    "prefetch": lambda: failing().prefetch(2),
    "zip": lambda: Dataset.zip(failing(), Dataset.range(6)),
    "zip of chunks": lambda: Dataset.zip(failing(), Dataset.range(6)).batch(3),
    "unbatch": lambda: failing().map(lambda x: np.full(2, x)).unbatch(),
    "unbatch of chunks": lambda: failing().map(lambda x: np.full(2, x)).unbatch().batch(3),
    "rebatch": lambda: Dataset.range(6).map(lambda i: np.full(2, inverse(i))).rebatch(3),
    "repeat": lambda: failing().repeat(2),
    "repeat of chunks": lambda: failing().repeat(2).batch(3),
    "window": lambda: failing().window(2).flat_map(lambda window: window),
    "interleave": lambda: Dataset.range(6).interleave(
        lambda i: Dataset.range(2).map(lambda j: inverse(i + j)), cycle_length=2
    ),
    "failing interleave": lambda: failing().interleave(Dataset.range, cycle_length=2),
    "flat_map": lambda: Dataset.range(6).flat_map(lambda i: Dataset.range(inverse(i))),
    "group_by_window": lambda: failing().group_by_window(
        lambda x: 0, lambda key, group: group.batch(2), window_size=2
    ),
    "scan": lambda: Dataset.range(6).scan(0, lambda s, i: (s, inverse(i))),
    "take_while": lambda: Dataset.range(6).take_while(lambda i: inverse(i) is not None),
    "unique": lambda: failing().unique(),
    "concatenate": lambda: failing().concatenate(Dataset.range(1)),
    "enumerate": lambda: failing().enumerate(),
    "choose": lambda: Dataset.choose_from_datasets([failing()], Dataset.range(1).repeat(6)),
    "sample": lambda: Dataset.sample_from_datasets([failing(), failing()], seed=1),
    "generator": lambda: Dataset.from_generator(lambda: map(inverse, range(6))),
}


def read_to_the_error(dataset):
    """Read until an error; return a reference to the iterator."""
    iterator = iter(dataset)
    try:  # pytest.raises would keep the frames
        list(iterator)
    except Exception:
        return weakref.ref(iterator)
    raise AssertionError("no error was raised")


@pytest.mark.parametrize("name", PIPELINES)
def test_iterator_is_freed_after_an_error(name):
    dataset = PIPELINES[name]()
    gc.collect()
    gc.disable()
    try:
        iterator = read_to_the_error(dataset)
        deadline = time.monotonic() + DEADLINE
        while iterator() is not None:  # a thread may still be about to drop it
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        gc.enable()
