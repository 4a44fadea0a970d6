"""Datasets as elements: of sources, of functions, and of batches."""

import pickle
from typing import Any

import numpy as np
import pytest

from stoker import Dataset, TensorSpec, UnknownSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs


def same(dataset: Any) -> Any:
    return dataset


def test_a_dataset_is_an_element_of_from_tensors() -> None:
    dataset = Dataset.from_tensors({"data": Dataset.range(3), "n": 3})
    assert dataset.element_spec == {"data": UnknownSpec(), "n": TensorSpec((), np.int64)}
    (element,) = dataset
    assert (list(element["data"]), element["n"]) == ([0, 1, 2], 3)


def test_a_list_of_datasets_is_cut_into_datasets() -> None:
    sources = [Dataset.range(2), Dataset.from_tensor_slices([5, 6, 7])]
    dataset = Dataset.from_tensor_slices((sources, ["a", "b"]))
    assert dataset.element_spec == (UnknownSpec(), TensorSpec((), object))
    assert [(list(data), name) for data, name in dataset] == [([0, 1], "a"), ([5, 6, 7], "b")]
    alone = Dataset.from_tensor_slices(sources)
    assert check_verbs(lambda: alone.flat_map(same)) == [0, 1, 5, 6, 7]
    assert list(pickle.loads(pickle.dumps(alone)).interleave(same)) == [0, 5, 1, 6, 7]


def test_batches_of_datasets_are_unbatched_and_rebatched() -> None:
    singles = Dataset.range(5).map(lambda i: (Dataset.from_tensors(i), i))
    batches = singles.batch(2)
    assert [len(data) for data, _ in batches] == [2, 2, 1]
    for dataset in (batches.unbatch(), batches.rebatch(3).unbatch()):
        pairs = [(list(data), int(i)) for data, i in dataset]
        assert pairs == [([i], i) for i in range(5)]


def test_datasets_among_values_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="only str, bytes and None, or only datasets"):
        Dataset.from_tensor_slices([Dataset.range(3), 2])
    mixed = Dataset.range(2).map(lambda i: Dataset.range(3) if i else 4)
    with pytest.raises(InvalidArgumentError, match="cannot batch"):
        list(mixed.batch(2))
