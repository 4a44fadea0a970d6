"""unique."""

import math
from typing import Any

import numpy as np
import pytest

from stoker import Dataset, RaggedArray
from stoker.dataset.nodes.elements import Elements
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened


def distinct(*elements: Any) -> int:
    """Return the number of distinct `elements` according to the node."""
    return len(list(Dataset(Elements.of(list(elements), None, "")).unique()))


def test_the_first_of_equal_elements_stays() -> None:
    assert list(Dataset.range(9).map(lambda x: x * x % 5).unique()) == [0, 1, 4]
    assert list(Dataset.from_tensor_slices(["b", "a", "b", "a" * 99, "a" * 99]).unique()) == [
        "b", "a", "a" * 99,
    ]  # fmt: skip


def test_all_verbs_read_the_same_stream() -> None:
    found = check_verbs(lambda: Dataset.range(200).map(lambda x: 60 // (x * x % 23)).unique())
    errors = [position for position in found if isinstance(position, tuple)]
    assert len(errors) == 9
    values = [position for position in found if isinstance(position, int)]
    assert len(values) == len(set(values)) == 10


@pytest.mark.parametrize(
    "equal",
    [
        (3, 3, np.int64(3)),
        (0.5, 0.5, np.float64(0.5)),
        (math.nan, float("nan"), np.float64("nan")),
        (True, True, np.True_),
        ("text", "text"),
        (b"bytes" * 20, b"bytes" * 20),
        (None, None),
        (1j, 1j),
        (np.arange(3), np.arange(3)),
        (np.arange(30), np.arange(60)[:30]),
        (np.array(["a", None], object), np.array(["a", None], object)),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
        (RaggedArray.from_rows([[1], []]), RaggedArray.from_rows([[1], []])),
    ],
)
def test_equal_elements_are_one(equal: tuple[Any, ...]) -> None:
    assert distinct(*equal) == 1


@pytest.mark.parametrize(
    "different",
    [
        (1, 1.0, True, "1", b"1", None, 1j),
        (np.int32(1), np.int64(1), np.float32(1), np.uint8(1)),
        (0.0, -0.0),
        (np.arange(4), np.arange(4).reshape(2, 2), np.arange(4, dtype=np.int32), [0, 1, 2, 3]),
        (np.arange(99), np.arange(99)[::-1]),
        ((1, 2), [1, 2], (1, (2,)), {"a": 1, "b": 2}),
        ("a" * 40, "a" * 41, b"a" * 40),
        (np.array(["a"], object), np.array([b"a"], object), np.array([["a"]], object), "a"),
        (RaggedArray.from_rows([[1], []]), RaggedArray.from_rows([[], [1]])),
    ],
)
def test_other_values_dtypes_shapes_and_structures_are_distinct(
    different: tuple[Any, ...],
) -> None:
    assert distinct(*different) == len(different)


def test_an_incomparable_element_is_an_error_at_its_position() -> None:
    dataset = Dataset.range(3).map(lambda x: object() if x == 1 else x).unique()
    stream = opened(dataset)
    assert stream.next_chunk(5, 1 << 20) == [0]
    with pytest.raises(InvalidArgumentError, match="the element contains a object") as caught:
        stream.next_chunk(5, 1 << 20)
    assert failure_origin(caught.value) == ("unique", dataset.node.site, 1, "<object>")
    assert stream.next_chunk(5, 1 << 20) == [2]


def test_each_repetition_begins_without_elements_seen() -> None:
    assert list(Dataset.range(6).map(lambda x: x % 2).unique().repeat(2)) == [0, 1, 0, 1]


def test_advance_skips_distinct_elements() -> None:
    stream = opened(Dataset.range(20).map(lambda x: x // 2).unique())
    assert stream.advance(4) == 4
    assert stream.next() == 4
    assert stream.advance(40) == 5


def test_spec_and_cardinality() -> None:
    dataset = Dataset.range(3).unique()
    assert dataset.element_spec == Dataset.range(3).element_spec
    assert dataset.cardinality() == UNKNOWN_CARDINALITY
    assert Dataset.range(0).unique().cardinality() == 0


def test_an_array_of_objects_other_than_text_is_named() -> None:
    mixed = Dataset.range(2).map(lambda x: np.array(["a", None, b"b", x], object))
    with pytest.raises(
        InvalidArgumentError, match=r"`unique` .* an array contains a int: 0; convert"
    ):
        next(iter(mixed.unique()))
