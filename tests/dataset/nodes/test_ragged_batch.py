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
        (
            [(np.ones((2, 1)),), (np.ones((2, 2)),)],
            (
                r"the leaf \[0\] has shape \(2, 1\) in element 0 of the batch and \(2, 2\) in "
                "element 1, but a RaggedArray is ragged in its rows' first dimension only; tr"
            ),
        ),
        ([np.ones(1), np.ones((1, 1))], "ragged in its rows' first dimension only"),
        ([np.ones(1), np.float64(1)], "ragged in its rows' first dimension only"),
        ([[1], [1.5]], "dtype int64 in element 0 of the batch and float64 in element 1"),
        ([RaggedArray.from_rows([[1]])], "would be ragged in two dimensions"),
        ([{"a": 1}, {"b": 1}], "dict with the keys"),
    ],
)
def test_elements_that_cannot_be_rows_fail_with_the_reason(elements: Any, message: str) -> None:
    dataset = Dataset.range(len(elements)).map(lambda i: elements[i]).ragged_batch(len(elements))
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        list(dataset)
    assert failure_origin(caught.value) == ("ragged_batch", dataset.node.site, 0)


def test_ragged_elements_are_refused_when_the_dataset_is_built() -> None:
    ragged = Dataset.from_tensors({"a": RaggedArray.from_rows([[1]])})
    with pytest.raises(InvalidArgumentError, match="use rebatch to join their rows"):
        ragged.ragged_batch(2)
    with pytest.raises(InvalidArgumentError, match="use rebatch to join their rows"):
        ragged.batch(2)


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
