"""`stoker.tensorflow.as_tf`: a tf.data.Dataset of a stoker Dataset."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import stoker  # noqa: E402
from stoker import Dataset, RaggedArray, SparseArray  # noqa: E402
from stoker.errors import InvalidArgumentError  # noqa: E402
from stoker.tensorflow import as_tf  # noqa: E402


@pytest.fixture(autouse=True)
def no_leaks():
    """Replace the check for leaks: threads of TensorFlow that called Python never end."""


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


def test_lists_are_tuples():
    [(x, y)] = as_tf(Dataset.range(1).map(lambda i: [np.ones(2), i]))
    assert (x.numpy().tolist(), int(y)) == ([1, 1], 0)


def test_service_is_read_in_every_epoch():
    with stoker.LocalCluster(1, threads=True) as cluster:
        dataset = as_tf(Dataset.range(10).batch(4).distribute(cluster))
        for _ in range(3):
            assert sorted(int(x) for batch in dataset for x in batch) == list(range(10))


def test_model_of_tensorflow_is_fitted():
    inputs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    targets = inputs @ np.array([[1.0], [2.0], [3.0]], np.float32)
    samples = Dataset.from_tensor_slices((inputs, targets)).shuffle(64).batch(16)
    weights = tf.Variable(tf.zeros((3, 1)))
    for _ in range(30):
        for x, y in as_tf(samples):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weights - y) ** 2)
            weights.assign_sub(0.1 * tape.gradient(loss, weights))
    assert float(loss) < 1e-3


def test_values_without_a_tensor_are_refused():
    with pytest.raises(InvalidArgumentError, match="no tensor for"):
        as_tf(Dataset.range(1).map(lambda _: {1, 2}))
