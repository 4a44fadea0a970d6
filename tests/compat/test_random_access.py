"""tf.data.experimental.at."""

from typing import Any

import numpy as np
import pytest

import stoker
from stoker.compat import tf
from tests.dataset.verbs import plain

Source = tf.data.Dataset
at = tf.data.experimental.at
FAILED = tf.errors.FailedPreconditionError
UNIMPLEMENTED = tf.errors.UnimplementedError

DATASETS = {
    "range": lambda: Source.range(9, -1, -3),
    "from_tensors": lambda: Source.from_tensors({"x": [1, 2]}),
    "from_tensor_slices": lambda: Source.from_tensor_slices(([1, 2, 3], ["a", "b", "c"])),
    "from_list": lambda: tf.data.experimental.from_list([(1, 2), (3, 4)]),
    "map": lambda: Source.range(5).map(lambda x: x * x, num_parallel_calls=2),
    "batch": lambda: Source.range(7).batch(3),
    "drop_remainder": lambda: Source.range(7).batch(3, drop_remainder=True),
    "padded_batch": lambda: Source.range(3).map(lambda n: np.full(n, 7)).padded_batch(2),
    "cache": lambda: Source.range(4).scan(0, lambda s, x: (s + x, s + x)).cache(),
    "take": lambda: Source.range(9).take(4),
    "skip": lambda: Source.range(9).skip(4),
    "repeat": lambda: Source.range(3).repeat(2),
    "concatenate": lambda: Source.range(3).concatenate(Source.range(7, 9)),
    "zip": lambda: Source.zip((Source.range(3), Source.range(5))),
    "enumerate": lambda: Source.range(3).enumerate(start=4),
    "shard": lambda: Source.range(9).shard(4, 1),
    "prefetch": lambda: Source.range(5).prefetch(2),
    "unbatch": lambda: Source.range(6).batch(2, drop_remainder=True).unbatch(),
    "window": lambda: Source.range(5).window(2).map(list),
    "filter": lambda: Source.range(9).filter(lambda x: x % 2).cache().map(lambda x: x + 1),
    "flat_map": lambda: Source.range(4).flat_map(Source.range).cache().batch(2).prefetch(1),
    "interleave": lambda: Source.range(4).interleave(Source.range, num_parallel_calls=2).cache(),
    "endless": lambda: Source.zip((Source.range(3), Source.range(2).repeat())),
    "shuffle": lambda: Source.range(9).shuffle(4, seed=3),
    "empty": lambda: Source.range(0),
}


@pytest.mark.parametrize("make", DATASETS.values(), ids=DATASETS)
def test_every_position_has_its_element(make):
    dataset = make()
    expected = [plain(element) for element in dataset.iterator(epoch=0)]
    order = [*range(len(expected)), *reversed(range(len(expected)))]
    assert [plain(at(dataset, i)) for i in order] == [expected[i] for i in order]
    for index in (-1, len(expected), len(expected) + 5):
        with pytest.raises(tf.errors.OutOfRangeError, match=rf"Index out of range .*:{index}$"):
            at(dataset, index=index)


def test_a_shuffled_dataset_has_one_order_also_in_batches():
    shuffled = Source.range(100).shuffle(100)
    order = [at(shuffled, i) for i in range(100)]
    assert sorted(order) == list(range(100))
    batches = [at(shuffled.batch(9), i) for i in range(12)]
    assert np.concatenate(batches).tolist() == order
    list(shuffled)  # an epoch changes nothing
    assert at(shuffled, 5) == order[5]
    assert at(Source.range(100).shuffle(100), 5) is not None


def test_only_the_functions_of_the_element_are_called():
    called: list[int] = []

    def noting(x):
        called.append(x)
        return x

    dataset = Source.range(10**9).map(noting).batch(2)
    index: Any = np.int64(10**8)
    assert at(dataset, index).tolist() == [2 * 10**8, 2 * 10**8 + 1]
    assert called == [2 * 10**8, 2 * 10**8 + 1]


@pytest.mark.parametrize(
    ("dataset", "error", "words"),
    [
        (Source.range(3).repeat(), FAILED, "`repeat` has infinite cardinality, which does not sup"),
        (Source.range(3).repeat(-2).map(str), FAILED, "has infinite cardinality, which does not"),
        (Source.range(5).batch(2).unbatch(), FAILED, "`unbatch` has unknown cardinality, which"),
        (Source.range(5).filter(bool), UNIMPLEMENTED, "not implemented for dataset `filter`"),
        (Source.range(5).filter(bool).batch(2), UNIMPLEMENTED, "not implemented for dataset `fil"),
        (Source.range(5).cache().filter(bool), UNIMPLEMENTED, "not implemented for dataset `fil"),
        (Source.range(5).flat_map(Source.range), UNIMPLEMENTED, "for dataset `flat_map`"),
    ],
)
def test_without_a_length_there_are_no_positions(dataset, error, words):
    with pytest.raises(error, match=words):
        at(dataset, 0)


def test_a_cache_is_filled_by_the_first_call():
    called: list[int] = []

    def noting(x):
        called.append(x)
        return x

    dataset = Source.range(6).map(noting).filter(lambda x: x % 2).cache().batch(2)
    assert [at(dataset, i).tolist() for i in (1, 0)] == [[5], [1, 3]]
    assert called == list(range(6))
    endless = Source.range(3).filter(bool).repeat().cache()
    assert [at(endless, i) for i in (4, 0)] == [1, 1]


def test_a_wrong_cardinality_is_found_at_its_position():
    dataset = Source.range(5).apply(tf.data.experimental.assert_cardinality(10))
    assert at(dataset, 4) == 4
    with pytest.raises(tf.errors.FailedPreconditionError, match="contained only 5"):
        at(dataset, 5)
    with pytest.raises(tf.errors.OutOfRangeError):
        at(dataset, 10)


def test_an_error_is_raised_at_its_position():
    dataset = Source.range(3).map(lambda x: 6 // (x - 1))
    assert (at(dataset, 0), at(dataset, 2)) == (-6, 6)
    with pytest.raises(ZeroDivisionError):
        at(dataset, 1)


@pytest.mark.parametrize("index", [1.0, "1", None])
def test_an_index_is_an_int(index):
    with pytest.raises(TypeError, match="`index` must be an int"):
        at(Source.range(3), index)


def test_what_cannot_be_repeated_has_no_random_access():
    distributed = Source.range(3).distribute("localhost:1")
    with pytest.raises(
        tf.errors.UnimplementedError, match="not implemented for dataset `distribute`"
    ):
        at(distributed, 0)
    unordered = stoker.Dataset.range(3).interleave(
        stoker.Dataset.range, num_parallel_calls=2, deterministic=False
    )
    with pytest.raises(NotImplementedError, match="not implemented for dataset `interleave`"):
        at(unordered, 0)
