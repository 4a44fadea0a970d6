"""Lists of numbers or text as vectors."""

from typing import Any

import numpy as np
import pytest

from stoker.dataset.collation.vectors import is_vector, vector, vectors
from stoker.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], True),
        ([1, 2.5, 1j, True, np.float32(1), None, "a", b"b", np.str_("c")], True),
        ([1, [2]], False),
        ([np.zeros(1)], False),
        ([(1,)], False),
        ([{}], False),
        ([object()], False),
    ],
)
def test_only_numbers_and_text_are_vectors(value: list[Any], expected: bool) -> None:
    assert is_vector(value) is expected


@pytest.mark.parametrize(
    "value",
    [
        [1, -(2**63), 2**63 - 1],
        [1, True],
        [True, 1],
        [1, np.int8(3)],
        [1, 2.5],
        [2.5, 1, False],
        [1.5, float("nan"), float("inf")],
        [1.5, 2j],
        [np.float32(1), np.float32(2)],
        [np.float32(1), 2.0],
        [np.uint64(2**63)],
        [np.datetime64(3, "s")],
    ],
)
def test_numbers_are_converted_as_by_numpy(value: list[Any]) -> None:
    expected = np.array(value)
    found = vector(value, "")
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "value", [[2**63], [True, 2**63], [1, -(2**64)], [True, 2**64], [1.5, 10**400]]
)
def test_ints_beyond_int64_are_refused(value: list[Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"\['x'\] holds {value[-1]}, beyond int64"):
        vector(value, "['x']")


@pytest.mark.parametrize(
    "value", [[1, "a"], ["a", 1], [1, None], [1, [2]], [1.5, "a"], [np.str_("a"), 1]]
)
def test_mixed_types_are_refused(value: list[Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="all of one kind"):
        vector(value, "")


def test_empty_lists_get_the_dtype_of_the_others() -> None:
    def dtypes(*values: Any) -> list[Any]:
        return [array.dtype for array in vectors(values, "", np.int8)]

    assert dtypes([], [1], []) == [np.int64] * 3
    assert dtypes([], np.zeros(0, np.float32)) == [np.float32] * 2
    assert dtypes([], ["a"]) == [object] * 2
    assert dtypes([], []) == [np.int8] * 2
