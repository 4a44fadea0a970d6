"""Arrays with rows of different lengths."""

from typing import Any

import numpy as np
import pytest

from stoker import RaggedArray
from stoker.errors import InvalidArgumentError


def test_from_rows_keeps_the_rows() -> None:
    ragged = RaggedArray.from_rows([[1, 2], [], [3]])
    assert ragged.to_list() == [[1, 2], [], [3]]
    assert ragged.dtype == np.int64
    assert ragged[-1].tolist() == [3]
    with pytest.raises(IndexError):
        ragged[3]


def test_from_rows_accepts_no_rows_and_rows_of_matrices() -> None:
    assert RaggedArray.from_rows([]).to_list() == []
    matrices = RaggedArray.from_rows([np.zeros((2, 3)), np.ones((1, 3))])
    assert [row.shape for row in matrices] == [(2, 3), (1, 3)]


def test_equality_compares_rows_and_dtype() -> None:
    ragged = RaggedArray.from_rows([[1], [2, 3]])
    assert ragged == RaggedArray.from_rows([[1], [2, 3]])
    assert ragged != RaggedArray.from_rows([[1, 2], [3]])
    assert ragged != RaggedArray.from_rows([[1], [2, 3]], np.int32)
    assert ragged != [[1], [2, 3]]


@pytest.mark.parametrize(
    ("values", "splits"),
    [([1, 2], [0, 1]), ([1, 2], [1, 2]), ([1, 2], [0, 2, 1, 2]), ([1], []), (5, [0, 1])],
)
def test_invalid_row_splits_are_refused(values: Any, splits: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        RaggedArray(values, splits)


def test_incompatible_rows_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="fit together"):
        RaggedArray.from_rows([np.zeros((1, 2)), np.zeros((1, 2, 1))])
    with pytest.raises(
        InvalidArgumentError, match=r"row 0 is array.* has no length; give each row"
    ):
        RaggedArray.from_rows([1, 2])
    with pytest.raises(InvalidArgumentError, match=r"must be a list of arrays or lists.*got 5"):
        RaggedArray.from_rows(5)  # type: ignore[arg-type]


NESTED: list[Any] = [[[1], [2, 3]], [], [[4, 5, 6], []]]


def test_rows_may_be_ragged_themselves() -> None:
    ragged = RaggedArray.from_rows(NESTED)
    assert ragged.to_list() == NESTED
    assert (len(ragged), ragged.ragged_rank) == (3, 2)
    assert ragged.flat_values.tolist() == [1, 2, 3, 4, 5, 6]
    assert ragged.row_splits.tolist() == [0, 2, 2, 4]
    assert ragged.values.row_splits.tolist() == [0, 1, 3, 6, 6]
    assert [row.to_list() for row in ragged] == NESTED
    assert ragged.rows(1, 3).to_list() == NESTED[1:]
    assert ragged.dtype == np.int64
    assert ragged.nbytes == 8 * (6 + 5 + 4)
    assert ragged == RaggedArray.from_rows(list(ragged))
    assert ragged != RaggedArray.from_rows([[[1], [2, 3]], [], [[4, 5], [6]]])
    assert ragged != ragged.values
    deeper = RaggedArray.from_rows([NESTED, [[[7]]]], np.int16)
    assert deeper.dtype == np.int16
    assert deeper.ragged_rank == 3
    assert deeper.to_list() == [NESTED, [[[7]]]]


def test_rows_of_arrays_of_other_shapes_are_ragged_themselves() -> None:
    ragged = RaggedArray.from_rows([np.zeros((1, 2)), np.zeros((2, 3)), np.zeros((0, 5))])
    assert ragged.to_list() == [[[0, 0]], [[0, 0, 0]] * 2, []]
    with pytest.raises(InvalidArgumentError, match=r"row 1 is array\(2\), which has no length"):
        RaggedArray.from_rows([[[1], 2], [[3]]])


@pytest.mark.parametrize(
    "rows", [[[], [[]]], [[[], []], [[1]]], [[[]], [[]]], [[[1], []]], [[], []]]
)
def test_empty_rows_fit_with_any(rows: Any) -> None:
    assert RaggedArray.from_rows(rows).to_list() == rows


def test_an_array_is_ragged_in_any_number_of_dimensions() -> None:
    dense = np.arange(24).reshape(2, 3, 4)
    for rank in (1, 2):
        ragged = RaggedArray.from_dense(dense, rank)
        assert (ragged.ragged_rank, ragged.to_list()) == (rank, dense.tolist())
        assert np.shares_memory(ragged.flat_values, dense)
