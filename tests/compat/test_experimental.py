"""tf.data.experimental: the functions that later became Dataset methods."""

from typing import Any

import numpy as np
import pytest

import stoker
from stoker.compat import tf

experimental = tf.data.experimental


def elements(dataset):
    return list(dataset.as_numpy_iterator())


def range_dataset(n=6):
    return tf.data.Dataset.range(n)


@pytest.mark.parametrize(
    ("transformation", "expected"),
    [
        (experimental.enumerate_dataset(1), [(1, 0), (2, 1), (3, 2)]),
        (experimental.take_while(lambda x: x < 2), [0, 1]),
        (experimental.scan(np.int64(1), lambda state, x: (state + 1, state * x)), [0, 2, 6]),
        (experimental.shuffle_and_repeat(1, 2), [0, 1, 2, 0, 1, 2]),
        (experimental.unique(), [0, 1, 2]),
        (experimental.assert_cardinality(3), [0, 1, 2]),
    ],
)
def test_transformation_equals_the_method_of_its_name(transformation, expected):
    assert elements(range_dataset(3).apply(transformation)) == expected
    assert elements(stoker.Dataset.range(3).apply(transformation)) == expected


def test_map_and_batch():
    dataset = range_dataset().apply(
        experimental.map_and_batch(lambda x: x + 1, 4, num_parallel_batches=2)
    )
    assert [batch.tolist() for batch in dataset] == [[1, 2, 3, 4], [5, 6]]
    whole = range_dataset().apply(experimental.map_and_batch(abs, 4, drop_remainder=True))
    assert [batch.tolist() for batch in whole] == [[0, 1, 2, 3]]


def test_unbatch():
    assert elements(range_dataset(3).batch(2).apply(experimental.unbatch())) == [0, 1, 2]


def test_dense_to_ragged_batch():
    dataset = range_dataset(3).map(np.arange).apply(experimental.dense_to_ragged_batch(3))
    assert next(iter(dataset)).to_list() == [[], [0], [0, 1]]


def test_ignore_errors_skips_failing_elements():
    dataset = range_dataset(3).map(lambda x: 6 // x).apply(experimental.ignore_errors())
    assert elements(dataset) == [6, 3]


def test_parallel_interleave():
    dataset = range_dataset(2).apply(
        experimental.parallel_interleave(
            lambda x: tf.data.Dataset.from_tensors(x).repeat(2), cycle_length=2, sloppy=True
        )
    )
    assert elements(dataset) == [0, 1, 0, 1]


def test_group_by_window():
    dataset = range_dataset(4).apply(
        experimental.group_by_window(lambda x: x % 2, lambda _, window: window.batch(2), 2)
    )
    assert sorted(batch.tolist() for batch in dataset) == [[0, 2], [1, 3]]


def test_bucket_by_sequence_length():
    dataset = range_dataset(4).map(np.arange)
    dataset = dataset.apply(experimental.bucket_by_sequence_length(len, [2], [2, 2]))
    assert sorted(batch.shape for batch in dataset) == [(2, 1), (2, 3)]


def test_snapshot(tmp_path):
    dataset = range_dataset().apply(experimental.snapshot(str(tmp_path / "kept")))
    assert elements(dataset) == elements(dataset) == [0, 1, 2, 3, 4, 5]


def test_save_and_load(tmp_path):
    path = str(tmp_path / "saved")
    experimental.save(range_dataset(), path)
    assert elements(experimental.load(path)) == [0, 1, 2, 3, 4, 5]
    assert type(experimental.load(path, tf.TensorSpec((), tf.int64))) is tf.data.Dataset
    with pytest.raises(tf.errors.UnimplementedError, match="wait=True"):
        tf.data.Dataset.load(path, wait=True)


def test_reader_func_gets_tensorflows_methods(tmp_path):
    path = str(tmp_path / "saved")
    range_dataset().save(path)
    dataset = tf.data.Dataset.load(
        path, reader_func=lambda files: files.interleave(lambda file: file, name="x")
    )
    assert elements(dataset) == [0, 1, 2, 3, 4, 5]


def test_sample_and_choose_from_datasets():
    sampled = experimental.sample_from_datasets(
        [range_dataset(2), range_dataset(0)], [1.0, 0.0], seed=1
    )
    assert elements(sampled) == [0, 1]
    choices = tf.data.Dataset.from_tensor_slices(np.array([0, 0, 1, 1, 1, 0]))
    chosen = experimental.choose_from_datasets([range_dataset(2), range_dataset(5)], choices)
    assert elements(chosen) == [0, 1, 0, 1, 2]


def test_counter_and_random_dataset():
    assert elements(experimental.Counter(10, 5).take(3)) == [10, 15, 20]
    assert experimental.Counter(dtype=tf.int32).element_spec == tf.TensorSpec((), tf.int32)
    drawn = [elements(experimental.RandomDataset(seed=4).take(3)) for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_cardinality_single_element_and_structure():
    assert experimental.cardinality(range_dataset()) == 6
    assert experimental.cardinality(stoker.Dataset.range(3)) == 3
    assert experimental.get_single_element(range_dataset(1)) == 0
    assert experimental.get_structure(range_dataset()) == tf.TensorSpec((), tf.int64)


def test_from_list():
    assert elements(experimental.from_list([(1, "a"), (2, "b")])) == [(1, b"a"), (2, b"b")]
    with pytest.raises(tf.errors.InvalidArgumentError, match="non-empty list"):
        experimental.from_list([])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="must all have one structure; element 1"
    ):
        experimental.from_list([(1, 2), 3])


def test_from_list_declares_what_its_elements_have_in_common():
    lengths = experimental.from_list([([[1]], [0.5]), ([[2, 3]], [1.5])]).element_spec
    assert lengths == (tf.TensorSpec((1, None), tf.int32), tf.TensorSpec((1,), tf.float32))
    assert experimental.from_list([1, 2.5]).element_spec == stoker.UnknownSpec()


def test_a_window_size_below_1_is_an_error_when_the_dataset_is_read():
    sizes: list[Any] = [0, -1, np.int64(0)]
    for size in sizes:
        windows = tf.data.Dataset.range(3).group_by_window(int, lambda _, window: window, size)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"at least 1; got {size} for key"):
            elements(windows)


def test_from_list_elements_may_differ_in_shape():
    dataset = experimental.from_list([[1], [2, 3]])
    assert [element.tolist() for element in dataset] == [[1], [2, 3]]
    assert len(dataset) == 2
