"""from_tensors and from_tensor_slices."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

from stoker import Dataset, RaggedArray, SparseArray, TensorSpec
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context
from stoker.errors import InvalidArgumentError


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Sample:
    image: Any
    label: Any


def test_lists_become_arrays_and_the_rest_stays() -> None:
    (element,) = Dataset.from_tensors({"a": [1, 2], "b": 5, "c": "text", "d": Point(None, [1.5])})
    assert element["a"].dtype == np.int64
    assert element["a"].tolist() == [1, 2]
    assert (element["b"], element["c"], element["d"].x) == (5, "text", None)
    assert type(element["d"]) is Point


def test_slices_of_every_nesting() -> None:
    n = np.arange(3)
    assert list(Dataset.from_tensor_slices(n)) == [0, 1, 2]
    assert list(Dataset.from_tensor_slices((n, n + 1))) == [(0, 1), (1, 2), (2, 3)]
    assert list(Dataset.from_tensor_slices({"a": n})) == [{"a": 0}, {"a": 1}, {"a": 2}]
    assert list(Dataset.from_tensor_slices(Point(n, n)))[2] == Point(2, 2)
    assert list(Dataset.from_tensor_slices(Sample(n, n)))[1] == Sample(1, 1)
    assert list(Dataset.from_tensor_slices({"a": (n, {"b": n})}))[1] == {"a": (1, {"b": 1})}


def test_none_beside_arrays_is_in_each_slice_row_and_batch_of_rows() -> None:
    value = ({"a": [1, 2], "b": None}, None)
    rows = [({"a": 1, "b": None}, None), ({"a": 2, "b": None}, None)]
    slices = Dataset.from_tensor_slices(value)
    assert list(slices) == list(slices.shuffle(1)) == list(slices.batch(2).unbatch()) == rows
    batches = Dataset.from_tensors(value).map(lambda *members: members)
    for unknown in (batches, Dataset.from_tensors(value)):
        assert list(unknown.unbatch()) == rows
        (joined,) = unknown.repeat(2).rebatch(4)
        assert (joined[0]["a"].tolist(), joined[0]["b"], joined[1]) == ([1, 2, 1, 2], None, None)
    assert slices.element_spec[1] == Dataset.from_tensors(value).unbatch().element_spec[1]
    with pytest.raises(InvalidArgumentError, match="nothing to slice"):
        Dataset.from_tensor_slices((None, None))
    with pytest.raises(InvalidArgumentError, match="holds no array"):
        list(Dataset.from_tensors((None, None)).unbatch())


def test_slices_are_numpy_scalars_read_only_arrays_or_text() -> None:
    scalar, row, text, data = next(
        iter(Dataset.from_tensor_slices((np.arange(2, dtype=np.int8), np.eye(2), ["é", "b"],
                                         [b"\0", b"x\0"])))
    )  # fmt: skip
    assert type(scalar) is np.int8
    assert (type(text), text, data) == (str, "é", b"\0")
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 5


def test_the_users_own_array_stays_writable() -> None:
    array = np.zeros((2, 2))
    list(Dataset.from_tensor_slices(array))
    list(Dataset.from_tensors(array))
    array[0, 0] = 1


def test_ragged_and_sparse_arrays_are_sliced_by_rows() -> None:
    ragged = RaggedArray.from_rows([[1, 2], [], [3]])
    assert [row.tolist() for row in Dataset.from_tensor_slices(ragged)] == [[1, 2], [], [3]]
    sparse = SparseArray.from_dense([[0, 1], [2, 0]])
    assert [row.to_dense().tolist() for row in Dataset.from_tensor_slices(sparse)] == [
        [0, 1],
        [2, 0],
    ]
    assert next(iter(Dataset.from_tensors(ragged))) == ragged


def test_chunks_keep_to_bytes_and_advance_is_free() -> None:
    stream = open_stream(Dataset.from_tensor_slices(np.zeros((100, 8))).node, Context())
    assert len(stream.next_chunk(50, 64 * 3)) == 3
    assert len(stream.next_chunk(50, 1)) == 1
    assert stream.advance(94) == 94
    assert len(stream.next_chunk(50, 1 << 20)) == 2


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([[1, 2], [3]], "RaggedArray.from_rows"),
        ({"x": [1], "y": [1, 2]}, r"\['x'\] has 1, .*\['y'\] has 2"),
        (5, r"no first dimension"),
        ({"x": np.float32(1)}, r"\['x'\].*no first dimension"),
        ((), "nothing to slice"),
        ([1, {"a": 2}], "contains a int"),
        ([2**63], "beyond int64"),
        ([2**70], "contains a int"),
        ({"x": object()}, r"\['x'\] is a object"),
        (np.array([1, "a"], dtype=object), "object arrays may contain only str, bytes and None"),
    ],
)
def test_what_cannot_be_sliced_is_named(value: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Dataset.from_tensor_slices(value)


def test_an_int_beyond_int64_is_no_tensor() -> None:
    with pytest.raises(InvalidArgumentError, match="beyond int64"):
        Dataset.from_tensors({"x": 2**63})


def test_ranges_and_views_of_dicts_become_arrays() -> None:
    dataset = Dataset.from_tensor_slices((range(3), {"x": range(6, 0, -2)}))
    assert dataset.element_spec == (TensorSpec((), np.int64), {"x": TensorSpec((), np.int64)})
    assert list(dataset) == [(0, {"x": 6}), (1, {"x": 4}), (2, {"x": 2})]
    names = {"a": 1, "b": 2}
    assert list(Dataset.from_tensor_slices((names.keys(), names.values()))) == [("a", 1), ("b", 2)]
    (element,) = Dataset.from_tensors(range(3))
    assert element.tolist() == [0, 1, 2]
