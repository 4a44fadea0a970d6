"""Arrays that are mostly zero."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stoker import Dataset, SparseArray
from stoker.errors import InvalidArgumentError


@pytest.mark.parametrize("dense", [np.eye(3), np.zeros((0, 4)), np.int64(7), np.zeros(()), [0, 5]])
def test_from_dense_and_to_dense_are_inverse(dense: Any) -> None:
    sparse = SparseArray.from_dense(dense)
    assert np.array_equal(sparse.to_dense(), dense)
    assert sparse.to_dense().dtype == np.asarray(dense).dtype


def test_a_row_is_sparse() -> None:
    sparse = SparseArray.from_dense([[0, 7], [8, 0]])
    assert len(sparse) == 2
    assert sparse[1].to_dense().tolist() == [8, 0]
    assert sparse[-2].to_dense().tolist() == [0, 7]
    with pytest.raises(IndexError):
        sparse[2]


def test_equality_compares_parts_and_dtype() -> None:
    sparse = SparseArray([[0]], [1], [2])  # type: ignore[arg-type]
    assert sparse == SparseArray.from_dense([1, 0])
    assert sparse != SparseArray.from_dense([1, 0, 0])
    assert sparse != SparseArray.from_dense([1.0, 0.0])


@pytest.mark.parametrize(
    ("indices", "values", "shape", "words"),
    [
        ([[0]], [1, 2], [2], "do not fit"),
        ([[0]], [1], [2, 2], r"have 1 numbers a row, and the dense shape \[2, 2\] has 2"),
        ([], [], 3, "do not fit"),
    ],
)
def test_incompatible_parts_are_refused(indices: Any, values: Any, shape: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        SparseArray(indices, values, shape)


@pytest.mark.parametrize("index", [2, -1])
def test_an_index_outside_is_an_error_where_rows_or_an_array_are_made(index: int) -> None:
    indices: Any = np.array([[0, 0], [1, index]])
    sparse = SparseArray(indices, np.array([1, 2]), np.array([2, 2]))
    (batch,) = Dataset.from_tensors(sparse).batch(1)
    assert batch.indices.tolist() == [[0, 0, 0], [0, 1, index]]
    made: list[Callable[[], Any]] = [
        sparse.to_dense,
        lambda: sparse[0],
        lambda: Dataset.from_tensor_slices(sparse),
        lambda: list(Dataset.from_tensors(sparse).unbatch()),
        lambda: list(Dataset.from_tensors(sparse).rebatch(1)),
    ]
    for make in made:
        with pytest.raises(
            InvalidArgumentError, match=rf"index \[1, {index}\] lies outside .* \[2, 2\]"
        ):
            make()
