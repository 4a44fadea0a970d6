"""`stoker.tensorflow.as_tf`: a tf.data.Dataset of a stoker Dataset."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from stoker import Dataset, RaggedArray, SparseArray  # noqa: E402
from stoker.errors import InvalidArgumentError  # noqa: E402
from stoker.tensorflow import as_tf  # noqa: E402


def test_spec_and_length_are_those_of_the_dataset():
    arrays = np.arange(6.0).reshape(3, 2), ["a", "b", "c"]
    dataset = as_tf(Dataset.from_tensor_slices(arrays).batch(2))
    assert dataset.element_spec[0] == tf.TensorSpec((None, 2), tf.float64)
    assert len(dataset) == 2
    assert [text.numpy().tolist() for _, text in dataset] == [[b"a", b"b"], [b"c"]]


def test_each_iteration_is_an_epoch():
    dataset = as_tf(Dataset.range(30).shuffle(30))
    first, second = ([int(x) for x in dataset] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second


def test_unknown_spec_is_that_of_the_first_element():
    dataset = as_tf(Dataset.range(2).map(lambda i: {"x": np.zeros(i), "n": i}))
    assert dataset.element_spec["x"] == tf.TensorSpec((None,), tf.float64)
    assert [int(tf.size(element["x"])) for element in dataset] == [0, 1]


def test_ragged_and_sparse_arrays_have_their_tensors():
    ragged = RaggedArray.from_rows([[1], [2, 3]])
    [found] = as_tf(Dataset.range(1).map(lambda _: ragged))
    assert found.to_list() == [[1], [2, 3]]
    sparse = SparseArray(np.array([[0, 1]]), np.array([5.0]), np.array([2, 2]))
    [found] = as_tf(Dataset.range(1).map(lambda _: sparse))
    assert tf.sparse.to_dense(found).numpy().tolist() == [[0, 5], [0, 0]]


def test_values_without_a_tensor_are_refused():
    with pytest.raises(InvalidArgumentError, match="no tensor for"):
        as_tf(Dataset.range(1).map(lambda _: {1, 2}))
