"""rebatch."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker import Dataset, RaggedArray, RaggedSpec, SparseArray, SparseSpec, TensorSpec
from stoker.dataset.streams.failures import failure_origin
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened, plain, tape


def returned(*elements: Any) -> Dataset:
    """The elements as a function returns them."""
    return Dataset.range(len(elements)).map(lambda i: elements[i])


def batches_of(lengths: list[int]) -> Dataset:
    """Batches of these lengths, their rows numbered; -1 fails and -2 is no batch."""
    starts = np.cumsum([0, *np.maximum(lengths, 0)]).tolist()

    def batch(i: int) -> Any:
        if lengths[i] == -1:
            raise KeyError(i)
        numbers = np.arange(starts[i], starts[i + 1])
        if lengths[i] == -2:
            return {"n": 1, "m": 2}
        text = np.array([str(n) for n in numbers], object)
        return {"n": numbers, "m": (numbers[:, None] + [0.5, 0.25], text)}

    return Dataset.range(len(lengths)).map(batch)


def errors_by_name(found: list[Any]) -> list[Any]:
    """Errors without their texts, which name the node."""
    return [p[:2] if isinstance(p, tuple) and p[0] == "raised" else p for p in found]


@given(
    lengths=st.lists(st.integers(-2, 9), max_size=12),
    size=st.integers(1, 12),
    drop=st.booleans(),
)
@settings(max_examples=200)
def test_rebatch_is_unbatch_then_batch(lengths: list[int], size: int, drop: bool) -> None:
    dataset = batches_of(lengths)
    expected = tape(dataset.unbatch().batch(size, drop))
    assert errors_by_name(tape(dataset.rebatch(size, drop))) == errors_by_name(expected)


@given(
    lengths=st.lists(st.integers(-2, 9), max_size=9),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    drop=st.booleans(),
)
@settings(max_examples=40)
def test_verbs_and_the_wire_form_read_the_same_stream(
    lengths: list[int], sizes: list[int], drop: bool
) -> None:
    check_verbs(lambda: batches_of(lengths).rebatch(sizes, drop), mixes=4)


def test_sizes_are_cycled_through() -> None:
    dataset = Dataset.range(10).batch(3)
    assert plain(list(dataset.rebatch([1, 3]))) == [[0], [1, 2, 3], [4], [5, 6, 7], [8], [9]]
    assert plain(list(dataset.rebatch((1, 3), drop_remainder=True))) == [
        [0],
        [1, 2, 3],
        [4],
        [5, 6, 7],
        [8],
    ]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([np.array(["a", "bc"]), np.array(["d"])], ["a", "bc", "d"]),
        ([np.array([b"a"]), np.array([None, "b"], object)], [b"a", None, "b"]),
        ([[1, 2], [3]], [1, 2, 3]),
        ([["a"], [], ["b", "c"]], ["a", "b", "c"]),
        ([[1.5], np.array([2.0, 3])], [1.5, 2.0, 3.0]),
        ([np.array([0, 1, 2], "datetime64[s]")], [0, 1, 2]),
    ],
)
def test_values_are_those_of_unbatch_then_batch(batches: list[Any], expected: list[Any]) -> None:
    (rebatched,) = returned(*batches).rebatch(3)
    (batched,) = returned(*batches).unbatch().batch(3)
    assert rebatched.dtype == batched.dtype
    assert rebatched.tolist() == batched.tolist()
    assert rebatched.astype(object if rebatched.dtype.hasobject else "i8").tolist() == [
        x if isinstance(x, str | bytes | None) else int(x) for x in expected
    ]


def test_ragged_rows_stay_ragged() -> None:
    ragged = [RaggedArray.from_rows([[1], [2, 3]]), RaggedArray.from_rows([[], [4]], np.int64)]
    assert [batch.to_list() for batch in returned(*ragged).rebatch(3)] == [
        [[1], [2, 3], []],
        [[4]],
    ]
    assert [batch.to_list() for batch in returned(*ragged).rebatch(1)] == [
        [[1]],
        [[2, 3]],
        [[]],
        [[4]],
    ]
    rows = Dataset.from_tensors(ragged[0]).rebatch(2, drop_remainder=True)
    assert rows.element_spec == RaggedSpec((2, None), np.int64)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_sparse_rows_stay_sparse(size: int) -> None:
    dense = np.random.default_rng(0).integers(0, 2, (2, 3, 4))
    shuffled = SparseArray.from_dense(dense[1])
    shuffled = SparseArray(shuffled.indices[::-1], shuffled.values[::-1], shuffled.dense_shape)
    dataset = returned(SparseArray.from_dense(dense[0]), shuffled)
    batches = list(dataset.rebatch(size))
    assert batches == list(dataset.unbatch().batch(size))
    whole = np.concatenate([batch.to_dense() for batch in batches])
    assert whole.tolist() == dense.reshape(6, 4).tolist()
    spec = Dataset.from_tensors(shuffled).rebatch(2).element_spec
    assert spec == SparseSpec((None, 4), np.int64)


def test_sparse_rows_of_differing_shapes_are_joined() -> None:
    shapes = ([2, 5], [2, 2])
    dataset = returned(*[SparseArray.from_dense(np.ones(shape)) for shape in shapes])
    batches = list(dataset.rebatch(3))
    assert [batch.dense_shape.tolist() for batch in batches] == [[3, 5], [1, 2]]
    assert batches == list(dataset.unbatch().batch(3))


def test_a_batch_within_one_element_is_a_writable_view() -> None:
    batch = np.arange(6)
    first, second = returned(batch).rebatch(3)
    assert np.shares_memory(first, batch)
    first[:] = 0
    assert second.tolist() == [3, 4, 5]
    for constant in (np.arange(4), RaggedArray.from_rows([[1]] * 4)):
        pieces = list(Dataset.from_tensors(constant).rebatch(2))
        values = [p.values if isinstance(p, RaggedArray) else p for p in pieces]
        assert all(array.flags.writeable for array in values)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (
            [{"a": np.zeros((2, 3))}, {"a": np.zeros((2, 4))}],
            r"the leaf \['a'\] has shape \(3,\) in element 0 of the batch and \(4,\) in element 2;",
        ),
        ([np.zeros(2, np.int8), np.zeros(2)], "dtype int8 in element 0 .* float64 in element 2"),
        (
            [np.zeros(2), RaggedArray.from_rows([[1.0]] * 2)],
            "in one batch a RaggedArray and in another a ndarray",
        ),
        (
            [SparseArray.from_dense(np.ones(shape)) for shape in ((2, 2), (2, 2, 2))],
            "sparse with 2 dimensions and dtype float64 in element 0 of the batch and 3 and",
        ),
        ([(np.zeros(2),), np.zeros(2)], "a tuple of 1 in element 0"),
    ],
)
def test_rows_that_differ_are_refused(batches: list[Any], message: str) -> None:
    dataset = returned(*batches).rebatch(3)
    iterator = iter(dataset)
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        next(iterator)
    assert failure_origin(caught.value) == ("rebatch", dataset.node.site, 0, "")
    assert len(list(iterator)) == 1


def test_elements_without_rows_are_refused_at_construction() -> None:
    with pytest.raises(InvalidArgumentError, match="no first dimension"):
        Dataset.range(3).rebatch(2)


@pytest.mark.parametrize("sizes", [0, -1, [], [0, 0], [2, -1], "ab", 1.5, None])
def test_wrong_sizes_are_refused(sizes: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="`batch_size` must be"):
        Dataset.range(3).batch(2).rebatch(sizes)


@pytest.mark.parametrize(
    ("sizes", "drop", "batches"),
    [
        ([3, 0], False, [[0, 1, 2], [], [3, 4, 5], [], [6, 7]]),
        ([3, 0], True, [[0, 1, 2], [], [3, 4, 5], []]),
        ([0, 4], False, [[], [0, 1, 2, 3], [], [4, 5, 6, 7], []]),
        ([3, 0, 0, 5], True, [[0, 1, 2], [], [], [3, 4, 5, 6, 7]]),
    ],
)
@pytest.mark.parametrize("declared", [False, True])
def test_a_size_of_0_yields_an_empty_batch(
    sizes: list[int], drop: bool, batches: list[Any], declared: bool
) -> None:
    source = Dataset.range(8).batch(4, drop_remainder=True)
    dataset = (source if declared else source.map(lambda x: x)).rebatch(sizes, drop)
    assert plain(list(dataset)) == batches
    assert all(batch.dtype == np.int64 for batch in dataset)
    assert dataset.cardinality() == (len(batches) if declared else -2)
    check_verbs(lambda: dataset)


@pytest.mark.parametrize("declared", [False, True])
def test_an_empty_batch_of_nothing_needs_a_spec(declared: bool) -> None:
    source = Dataset.range(0).batch(4, drop_remainder=True)
    dataset = (source if declared else source.map(lambda x: x)).rebatch([0, 1])
    assert plain(list(dataset)) == ([[]] if declared else [])
    assert dataset.cardinality() == (1 if declared else 0)
    assert opened(dataset).advance(3) == (1 if declared else 0)


def test_an_error_before_an_empty_batch_is_in_the_next_too() -> None:
    dataset = batches_of([-1, 3]).rebatch([0, 2])
    kinds = [item[0] if isinstance(item, tuple) else len(item["n"]) for item in tape(dataset)]
    assert kinds == ["raised", "raised", 0, 2, 0]
    check_verbs(lambda: dataset)


def test_the_length_is_known_where_no_batch_can_be_short() -> None:
    whole = Dataset.range(8).batch(4, drop_remainder=True)
    lengths = {(4, 4): (4,), (2,): (2,), (3,): (None,), (2, 4): (None,), (2, 0): (None,)}
    for sizes, shape in lengths.items():
        assert whole.rebatch(sizes).element_spec == TensorSpec(shape, np.int64)
    assert Dataset.range(8).batch(4).rebatch(2).element_spec == TensorSpec((None,), np.int64)


def test_spec_and_cardinality_follow_the_sizes() -> None:
    full = Dataset.range(10).batch(5, drop_remainder=True)
    for sizes, drop, length, count in (
        (4, False, None, 3),
        (4, True, 4, 2),
        ([3, 3], True, 3, 3),
        ([1, 3], False, None, 6),
        ([1, 3], True, None, 5),
        ([20, 1], False, None, 1),
    ):
        dataset = full.rebatch(sizes, drop)
        assert dataset.element_spec == TensorSpec((length,), np.int64)
        assert dataset.cardinality() == count == len(list(dataset))
    assert Dataset.range(10).batch(3).rebatch(2).cardinality() == -2
    assert Dataset.range(10).repeat().batch(3).rebatch(2).cardinality() == -1
    assert Dataset.range(0).batch(3).rebatch(2).cardinality() == 0


def test_advance_evaluates_the_input_and_joins_nothing() -> None:
    stream = opened(returned(*[np.zeros(10**9, np.int8)] * 3).rebatch(10**9 - 1))
    assert stream.advance(3) == 3
    assert stream.next().shape == (3,)
    assert stream.advance(3) == 0
    stream.close()
    many = opened(returned(np.zeros(10**9, np.int8)).rebatch([3, 7]))
    assert many.advance(2 * 10**8 - 1) == 2 * 10**8 - 1
    assert [len(batch) for batch in many.next_chunk(5, 1 << 20)] == [7]
    many.close()


def test_a_large_element_gives_many_batches_a_chunk() -> None:
    stream = opened(returned(np.arange(1000)).rebatch(10))
    assert [len(stream.next_chunk(64, 1 << 20)) for _ in range(3)] == [64, 36, 0]
