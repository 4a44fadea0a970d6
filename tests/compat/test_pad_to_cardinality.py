"""tf.data.experimental.pad_to_cardinality."""

import numpy as np
import pytest

from stoker import RaggedArray, SparseArray
from stoker.compat import tf
from tests.dataset.verbs import plain

Source = tf.data.Dataset
pad = tf.data.experimental.pad_to_cardinality


def test_padding_has_the_shapes_of_the_spec():
    data = {"a": [[1, 2], [3, 4]], "b": (["x", "y"], [0.5, 1.5])}
    dataset = Source.from_tensor_slices(data).apply(pad(3))
    assert len(dataset) == 3
    assert dataset.element_spec["valid"] == tf.TensorSpec((), tf.bool)
    first, _, last = dataset
    assert plain(first) == {"a": [1, 2], "b": (b"x", 0.5), "valid": True}
    assert plain(last) == {"a": [0, 0], "b": (b"", 0), "valid": False}
    assert last["a"].dtype == last["a"].dtype == np.int32
    assert [batch["valid"].tolist() for batch in dataset.batch(3)] == [[True, True, False]]


def test_without_a_spec_it_has_those_of_the_first_element():
    calls = []

    def element(x):
        calls.append(x)
        return {
            "dense": np.ones((2, x + 1), np.float32),
            "ragged": RaggedArray.from_rows([[1, 2], [3]]),
            "deep": RaggedArray.from_rows([[[1], [2, 3]], []]),
            "sparse": SparseArray.from_dense(np.eye(2)),
            "number": x,
        }

    dataset = Source.range(2).map(element).apply(pad(5, mask_key="real"))
    found = list(dataset)
    assert [(x["real"], x["number"]) for x in found] == [
        *[(True, 0), (True, 1)],
        *[(False, 0)] * 3,
    ]
    assert found[-1]["dense"].tolist() == [[0], [0]]
    assert found[-1]["ragged"].to_list() == [[], []]
    assert found[-1]["deep"].to_list() == [[], []]
    assert found[-1]["deep"].ragged_rank == 2
    assert found[-1]["sparse"].to_dense().tolist() == [[0, 0], [0, 0]]
    assert calls == [0, 1, 0]  # not once for each padding


def test_nothing_is_added_to_a_full_dataset():
    dataset = Source.from_tensors({"a": 1}).apply(pad(1))
    assert plain(list(dataset)) == [{"a": 1, "valid": True}]
    empty = Source.from_tensors({"a": 1}).take(0)
    assert plain(list(empty.apply(pad(1)))) == [{"a": 0, "valid": False}]


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Source.from_tensors({"a": 1}).filter(bool), "known cardinalty, but has cardinality -2"),
        (Source.from_tensors({"a": 1}).repeat(), "known cardinalty, but has cardinality -1"),
        (Source.from_tensors({"a": 1}).repeat(5), r"the target cardinality \(3\), but has card"),
        (Source.from_tensors(1), "requires its input dataset to be a dictionary"),
        (Source.range(2).map(str), "requires its input dataset to be a dictionary"),
        (Source.range(2).map(lambda x: {"a": Source.range(x)}), "values that are not arrays"),
        (Source.range(0).map(lambda x: {"a": x}), "cannot know the shapes of the padding"),
    ],
)
def test_other_datasets_are_refused(dataset, words):
    with pytest.raises(ValueError, match=words):
        list(dataset.apply(pad(3)))
