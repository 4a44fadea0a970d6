"""unbatch."""

from typing import Any

import numpy as np
import pytest

from stoker import Dataset, RaggedArray, RaggedSpec, SparseArray, SparseSpec, TensorSpec
from stoker.dataset.streams.failures import failure_origin
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened, plain

A = np.arange(2)


def returned(*elements: Any) -> Dataset:
    """The elements as a function returns them."""
    return Dataset.range(len(elements)).map(lambda i: elements[i])


def test_rows_come_one_by_one_as_from_tensor_slices() -> None:
    pair = (np.array([1.5, 2, 3]), np.array(["a", "b", "c"]))
    value = {"x": np.arange(6).reshape(3, 2), "y": pair}
    rows = list(returned(value, value).unbatch())
    assert plain(rows) == 2 * [
        {"x": [0, 1], "y": (1.5, "a")},
        {"x": [2, 3], "y": (2.0, "b")},
        {"x": [4, 5], "y": (3.0, "c")},
    ]
    assert type(rows[0]["y"][0]) is np.float64
    assert type(rows[0]["y"][1]) is str


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (({"x": A}, A), [({"x": 0}, 0), ({"x": 1}, 1)]),
        ({"x": (A,)}, [{"x": (0,)}, {"x": (1,)}]),
        (((A,), (A,)), [((0,), (0,)), ((1,), (1,))]),
        (({}, (A, A)), [({}, (0, 0)), ({}, (1, 1))]),
        (({"x": {"y": A}}, A), [({"x": {"y": 0}}, 0), ({"x": {"y": 1}}, 1)]),
    ],
)
def test_nesting_is_kept_where_leaves_equal_branches(batch: Any, rows: list[Any]) -> None:
    assert list(Dataset.from_tensor_slices(batch)) == rows
    assert list(returned(batch).unbatch()) == rows


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (np.array(["a", None, b"c"], object), ["a", None, b"c"]),
        (np.array([b"a", b"b"]), [b"a", b"b"]),
        ([1, 2.5, None, "x"], [1, 2.5, None, "x"]),
        ([], []),
        (np.zeros((0, 3)), []),
        ([np.array([1, 2]), np.array([3, 4])], [[1, 3], [2, 4]]),
    ],
)
def test_text_is_text_and_the_items_of_a_list_are_rows(batch: Any, rows: list[Any]) -> None:
    found = list(returned(batch).unbatch())
    assert plain(found) == rows
    assert [type(row) for row in found] == [type(row) for row in rows]


def test_ragged_and_sparse_arrays_are_cut_into_rows() -> None:
    ragged = RaggedArray.from_rows([[1, 2], [], [3]])
    dense = np.array([[0, 5, 0], [7, 0, 8], [0, 0, 0]])
    indices = np.array([[1, 2], [0, 1], [1, 0]])
    shuffled = SparseArray(indices, np.array([8, 5, 7]), np.array([3, 3]))
    dataset = Dataset.from_tensors((ragged, SparseArray.from_dense(dense), shuffled)).unbatch()
    assert dataset.element_spec == (
        TensorSpec((None,), np.int64),
        SparseSpec((3,), np.int64),
        SparseSpec((3,), np.int64),
    )
    rows = list(dataset)
    assert [row[0].tolist() for row in rows] == [[1, 2], [], [3]]
    assert [row[1].to_dense().tolist() for row in rows] == dense.tolist()
    assert [row[2].to_dense().tolist() for row in rows] == dense.tolist()


def test_rows_are_views_as_writable_as_the_batch() -> None:
    batch = np.zeros((2, 3))
    first, second = returned(batch).unbatch()
    first[:] = 1
    assert batch.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert second.tolist() == [0, 0, 0]
    (row, _) = Dataset.from_tensors(batch).unbatch()
    assert not row.flags.writeable


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (5, r"cannot unbatch: the element \(5\) has no first dimension"),
        ({"a": [1], "b": "text"}, r"the leaf \['b'\] \('text'\) has no first dimension"),
        (np.float32(1), "has no first dimension"),
        (np.array(1), "has no first dimension"),
        (SparseArray.from_dense(np.array(3)), "has no first dimension"),
        (
            (np.zeros(2), [1, 2, 3]),
            r"the same number of rows; the leaf \[0\] has 2, the leaf \[1\] has 3",
        ),
        ((), "the element holds no array"),
        ({"a": ()}, "the element holds no array"),
    ],
)
def test_an_element_without_rows_is_one_error_naming_it(element: Any, message: str) -> None:
    dataset = returned([0], element, [9]).unbatch()
    iterator = iter(dataset)
    assert next(iterator) == 0
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        next(iterator)
    assert failure_origin(caught.value) == ("unbatch", dataset.node.site, 1, "")
    assert list(iterator) == [9]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "no first dimension"),
        ({"a": [1], "b": 2}, r"the leaf \['b'\] has the spec TensorSpec"),
        ((np.zeros(2), np.zeros(3)), r"the leaf \[0\] has 2, the leaf \[1\] has 3"),
    ],
)
def test_a_known_spec_is_checked_when_the_dataset_is_built(value: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Dataset.from_tensors(value).unbatch()


def test_the_cardinality_is_known_from_the_specs_row_count() -> None:
    tens = Dataset.range(10)
    assert tens.batch(3, drop_remainder=True).unbatch().cardinality() == 9
    assert tens.batch(3).unbatch().cardinality() == -2
    assert tens.take(0).batch(3).unbatch().cardinality() == 0
    assert tens.repeat().batch(3).unbatch().cardinality() == -1
    assert tens.batch(2).map(lambda x: x).unbatch().cardinality() == -2
    four = (np.zeros(4), RaggedArray.from_rows([[]] * 4))
    assert Dataset.from_tensors(four).unbatch().cardinality() == 4


def test_the_spec_loses_its_first_dimension() -> None:
    spec = [TensorSpec((None, 3), np.uint8), RaggedSpec((None, None, 2), np.int8)]
    dataset = returned(0).map(lambda x: x, element_spec=spec).unbatch()
    assert dataset.element_spec == [TensorSpec((3,), np.uint8), TensorSpec((None, 2), np.int8)]


def flaky(x: int) -> Any:
    if x % 7 == 3:
        raise KeyError(x)
    return 5 if x % 7 == 5 else (np.arange(x % 4), [str(x)] * (x % 4))


def test_verbs_and_the_wire_form_read_the_same_stream() -> None:
    found = check_verbs(lambda: Dataset.range(40).map(flaky).unbatch(), mixes=30)
    errors = [position[1] for position in found if position[0] == "raised"]
    assert errors == ["KeyError", "InvalidArgumentError"] * 5 + ["KeyError"]
    check_verbs(lambda: Dataset.range(300).batch(100).unbatch())


def test_chunks_cross_ready_batches_within_their_bounds() -> None:
    stream = opened(Dataset.range(4000).batch(2).unbatch())
    stream.next_chunk(1, 1 << 20)
    assert max(len(stream.next_chunk(50, 1 << 20)) for _ in range(20)) == 50
    large = opened(returned(np.zeros((10, 1000))).unbatch())
    assert [len(large.next_chunk(100, 16_000)) for _ in range(3)] == [2, 2, 2]


def test_advance_evaluates_the_input_and_cuts_nothing() -> None:
    called: list[int] = []

    def batch(x: int) -> Any:
        called.append(x)
        return np.zeros(10**9, np.int8) if x < 2 else np.arange(3)

    stream = opened(Dataset.range(4).map(batch).unbatch())
    assert stream.advance(2 * 10**9 + 1) == 2 * 10**9 + 1
    assert called == [0, 1, 2]
    assert stream.next() == 1
    stream.close()


def test_unbatch_undoes_batch() -> None:
    dataset = Dataset.range(10).map(lambda x: {"x": x, "text": str(x)})
    assert list(dataset.batch(4).unbatch()) == list(dataset)
