"""Spec that covers the elements of several datasets."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from stoker import (
    RaggedArray,
    RaggedSpec,
    SparseArray,
    SparseSpec,
    TensorSpec,
    UnknownSpec,
)
from stoker.elements.common_spec import ObservedSpec, common_spec
from stoker.errors import InvalidArgumentError

Pair = namedtuple("Pair", ["a", "b"])  # noqa: PYI024
Other = namedtuple("Other", ["a", "b"])  # noqa: PYI024
INT, FLOAT = TensorSpec((), "int64"), TensorSpec((), "float64")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (INT, INT, INT),
        (INT, UnknownSpec(), UnknownSpec()),
        (TensorSpec((3, 2)), TensorSpec((None, 2)), TensorSpec((None, 2))),
        (TensorSpec((3,)), TensorSpec((3, 1)), UnknownSpec()),
        (RaggedSpec((2, None, 3)), RaggedSpec((4, None, 3)), RaggedSpec((None, None, 3))),
        (SparseSpec((2, 3)), SparseSpec((2, 4)), SparseSpec((2, None))),
        ((INT, [FLOAT]), (INT, [UnknownSpec()]), (INT, [UnknownSpec()])),
        ({"x": INT, "y": FLOAT}, {"y": FLOAT, "x": INT}, {"x": INT, "y": FLOAT}),
        (Pair(INT, TensorSpec((1,))), Pair(INT, TensorSpec((2,))), Pair(INT, TensorSpec((None,)))),
    ],
)
def test_differing_lengths_and_ranks_are_unknown(a: Any, b: Any, expected: Any) -> None:
    found = common_spec(a, b)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (INT, FLOAT, "different dtypes"),
        (INT, (INT,), "different structures"),
        ((INT,), [INT], "different structures"),
        ((INT,), (INT, INT), "different structures"),
        ({"x": INT}, {"y": INT}, "different structures"),
        (Pair(INT, INT), Other(INT, INT), "different structures"),
        (TensorSpec((2, None)), RaggedSpec((2, None)), "different structures"),
    ],
)
def test_different_structures_and_dtypes_are_refused(a: Any, b: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        common_spec(a, b)


def test_a_spec_observed_from_ragged_and_sparse_arrays_keeps_their_kind() -> None:
    observed = ObservedSpec(UnknownSpec())
    for rows in ([[1]], [[1], [2, 3]]):
        observed.add((RaggedArray.from_rows(rows), SparseArray.from_dense(np.eye(len(rows)))))
    ragged, sparse = RaggedSpec((None, None), "int64"), SparseSpec((None, None), "float64")
    assert observed.spec == (ragged, sparse)


def test_observed_parts_that_differ_are_unknown() -> None:
    observed = ObservedSpec(UnknownSpec())
    observed.add({"x": 1, "y": (1, 2)})
    observed.add({"x": 1.0, "y": (1, [2])})
    assert observed.spec == {"x": UnknownSpec(), "y": (INT, UnknownSpec())}
