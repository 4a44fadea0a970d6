"""ragged_batch."""

from typing import Any

import numpy as np
import pytest

from stoker import Dataset, RaggedArray, RaggedSpec, SparseArray, SparseSpec, TensorSpec
from stoker.dataset.streams.failures import failure_origin
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened


def growing(n: int) -> Dataset:
    return Dataset.range(n).map(lambda x: np.full(x % 4, x, np.int16))


def test_rows_keep_their_lengths() -> None:
    batches = list(growing(5).ragged_batch(3))
    assert batches == [
        RaggedArray.from_rows([[], [1], [2, 2]], np.int16),
        RaggedArray.from_rows([[3, 3, 3], []], np.int16),
    ]
    assert batches[0].values.flags.writeable
    assert len(list(growing(5).ragged_batch(3, drop_remainder=True))) == 1


def test_rows_of_equal_length_are_ragged_too() -> None:
    (batch,) = Dataset.range(2).map(lambda x: np.full((2, 3), x)).ragged_batch(2)
    assert isinstance(batch, RaggedArray)
    assert batch.values.shape == (4, 3)
    assert batch.row_splits.tolist() == [0, 2, 4]


def test_scalars_sparse_arrays_and_known_shapes_are_stacked() -> None:
    value = (np.zeros((3, 2)), 5, "text", SparseArray.from_dense([1, 0]))
    dataset = Dataset.from_tensors(value).repeat(2).ragged_batch(2)
    (batch,) = dataset
    assert batch[0].shape == (2, 3, 2)
    assert batch[1].tolist() == [5, 5]
    assert batch[2].tolist() == ["text", "text"]
    assert batch[3] == SparseArray.from_dense([[1, 0], [1, 0]])
    assert dataset.element_spec == (
        TensorSpec((None, 3, 2), np.float64),
        TensorSpec((None,), np.int64),
        TensorSpec((None,), object),
        SparseSpec((None, 2), np.int64),
    )


def test_lists_of_numbers_or_text_are_rows() -> None:
    elements = [{"tokens": [1], "words": []}, {"tokens": [2, 3], "words": ["a", None]}]
    (batch,) = Dataset.range(2).map(lambda i: elements[i]).ragged_batch(2)
    assert batch["tokens"] == RaggedArray.from_rows([[1], [2, 3]])
    assert batch["words"].to_list() == [[], ["a", None]]
    assert batch["words"].dtype == np.dtype(object)


def test_the_rows_of_a_ragged_array_make_it_again() -> None:
    ragged = RaggedArray.from_rows([[1, 2], [], [3]])
    dataset = Dataset.from_tensor_slices(ragged).ragged_batch(3, drop_remainder=True)
    assert list(dataset) == [ragged]
    assert dataset.element_spec == RaggedSpec((3, None), np.int64)
    assert dataset.cardinality() == 1
    assert Dataset.from_tensor_slices(ragged).ragged_batch(2).cardinality() == 2


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([(np.ones(1),), (np.ones((1, 1)),)], r"leaf \[0\] has shape \(1,\) in element 0 of the"),
        ([np.ones(1), np.float64(1)], r"has shape \(1,\) in element 0 of the batch and \(\) in"),
        ([[1], [1.5]], "dtype int64 in element 0 of the batch and float64 in element 1"),
        ([RaggedArray.from_rows([[1]]), [1]], "is a RaggedArray in one element and another value"),
        ([{"a": 1}, {"b": 1}], "dict with the keys"),
    ],
)
def test_elements_that_cannot_be_rows_fail_with_the_reason(elements: Any, message: str) -> None:
    dataset = Dataset.range(len(elements)).map(lambda i: elements[i]).ragged_batch(len(elements))
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        list(dataset)
    assert failure_origin(caught.value) == ("ragged_batch", dataset.node.site, 0, "")


@pytest.mark.parametrize("spec", [None, TensorSpec((None, None, 2), np.int64)])
def test_lengths_that_vary_in_several_dimensions_are_ragged(spec: Any) -> None:
    def element(x: int) -> Any:
        return np.full((x % 3, 1 + x % 2, 2), x)

    dataset = Dataset.range(6).map(element, element_spec=spec).ragged_batch(4)
    batches = list(dataset)
    assert [batch.ragged_rank for batch in batches] == [2, 2]
    found = [row for batch in batches for row in batch.to_list()]
    assert found == [element(x).tolist() for x in range(6)]
    assert batches[0].flat_values.shape == (4, 2)
    if spec is not None:
        assert dataset.element_spec == RaggedSpec((None, None, None, 2), np.int64, ragged_rank=2)


def test_the_spec_tells_the_ragged_dimensions() -> None:
    spec = TensorSpec((3, None), np.int64)
    dataset = Dataset.range(2).map(lambda x: np.full((3, 2), x), element_spec=spec).ragged_batch(2)
    assert dataset.element_spec == RaggedSpec((None, None, None), np.int64, ragged_rank=2)
    (batch,) = dataset
    assert (batch.ragged_rank, batch.to_list()) == (2, [[[x, x]] * 3 for x in range(2)])


def test_ragged_elements_get_one_more_ragged_dimension() -> None:
    rows: list[Any] = [[[1], [2, 3]], [[4]]]
    dataset = Dataset.from_tensor_slices({"a": RaggedArray.from_rows(rows)}).ragged_batch(2)
    spec = RaggedSpec((None, None, None), np.int64, ragged_rank=2)
    assert dataset.element_spec == {"a": spec}
    assert [batch["a"].to_list() for batch in dataset] == [rows]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="`batch_size`"):
        growing(2).ragged_batch(0)
    with pytest.raises(InvalidArgumentError, match="`drop_remainder`"):
        growing(2).ragged_batch(2, 3)  # type: ignore[arg-type]


def test_verbs_and_the_wire_form_read_the_same_stream() -> None:
    def flaky(x: int) -> Any:
        if x in (4, 20):
            raise KeyError(x)
        return (np.full(x % 5, x), x)

    found = check_verbs(lambda: Dataset.range(30).map(flaky).ragged_batch(4))
    assert len(found) == 8
    assert found[0] == (RaggedArray.from_rows([[], [1], [2, 2], [3, 3, 3]], np.int64), [0, 1, 2, 3])
    assert [found[1][1], found[5][1]] == ["KeyError", "KeyError"]


def test_advance_calls_nothing() -> None:
    called: list[int] = []
    stream = opened(Dataset.range(10**9).map(called.append).ragged_batch(10))
    assert stream.advance(10**7) == 10**7
    assert called == []
    stream.close()
