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
        RaggedArray.from_rows([np.zeros((1, 2)), np.zeros((1, 3))])
    with pytest.raises(
        InvalidArgumentError, match=r"row 0 is array.* has no length; give each row"
    ):
        RaggedArray.from_rows([1, 2])
    with pytest.raises(InvalidArgumentError, match=r"must be a list of arrays or lists.*got 5"):
        RaggedArray.from_rows(5)  # type: ignore[arg-type]
