"""bucket_by_sequence_length."""

from typing import Any

import numpy as np
import pytest

from stoker import Dataset
from stoker.elements.spec import TensorSpec
from stoker.errors import DataLossError, InvalidArgumentError
from tests.dataset.verbs import check_verbs, plain

# The example of tf.data's documentation.
ELEMENTS = [[0], [1, 2, 3, 4], [5, 6, 7], [7, 8, 9, 10, 11], [13, 14, 15, 16, 19, 20], [21, 22]]


def sequences(elements: list[list[int]] = ELEMENTS) -> Dataset:
    return Dataset.from_generator(lambda: map(np.array, elements))


# The batches of tf.data 2.21.
@pytest.mark.parametrize(
    ("arguments", "count", "expected"),
    [
        (
            {},
            6,
            [
                [[1, 2, 3, 4], [5, 6, 7, 0]],
                [[7, 8, 9, 10, 11, 0], [13, 14, 15, 16, 19, 20]],
                [[0, 0], [21, 22]],
            ],
        ),
        ({"pad_to_bucket_boundary": True}, 3, [[[1, 2, 3, 4], [5, 6, 7, 0]], [[0, 0]]]),
        (
            {"drop_remainder": True},
            5,
            [
                [[1, 2, 3, 4], [5, 6, 7, 0]],
                [[7, 8, 9, 10, 11, 0], [13, 14, 15, 16, 19, 20]],
            ],
        ),
        (
            {"padding_values": -1, "padded_shapes": [7]},
            2,
            [[[0, -1, -1, -1, -1, -1, -1]], [[1, 2, 3, 4, -1, -1, -1]]],
        ),
    ],
)
def test_batches_are_those_of_tf_data(
    arguments: dict[str, Any], count: int, expected: list[Any]
) -> None:
    dataset = sequences(ELEMENTS[:count]).bucket_by_sequence_length(
        len, [3, 5], [2, 2, 2], **arguments
    )
    assert plain(list(dataset)) == expected


def test_the_order_is_full_buckets_first_then_the_shorter_ones() -> None:
    dataset = Dataset.range(1, 12).map(lambda n: [n] * n)
    found = dataset.bucket_by_sequence_length(len, [3, 6], [2, 2, 4])
    assert [batch.max(axis=1).tolist() for batch in found] == [
        [1, 2], [3, 4], [6, 7, 8, 9], [5], [10, 11],
    ]  # fmt: skip


def test_all_verbs_read_the_same_stream() -> None:
    def length(tokens: list[int]) -> int:
        if len(tokens) % 9 == 4:
            raise ValueError(f"no length for {tokens}")
        return len(tokens)

    def make() -> Dataset:
        tokens = Dataset.range(60).map(lambda n: [n] * (n * 7 % 23))
        return tokens.bucket_by_sequence_length(length, [4, 9, 15], [5, 3, 2, 2])

    found = check_verbs(make)
    assert any(isinstance(position, tuple) for position in found)


def test_structures_are_padded_member_by_member() -> None:
    pairs = Dataset.range(1, 5).map(lambda n: {"tokens": [n] * n, "label": n})
    dataset = pairs.bucket_by_sequence_length(
        lambda element: len(element["tokens"]), [3], [2, 2], pad_to_bucket_boundary=False
    )
    assert plain(list(dataset)) == [
        {"tokens": [[1, 0], [2, 2]], "label": [1, 2]},
        {"tokens": [[3, 3, 3, 0], [4, 4, 4, 4]], "label": [3, 4]},
    ]


def test_padding_to_the_boundary_uses_the_known_shapes() -> None:
    def element(n: int) -> tuple[Any, ...]:
        return np.ones((n, 2), np.int32), n, np.zeros(3)

    spec = (TensorSpec((None, 2), np.int32), TensorSpec((), np.int64), TensorSpec((3,)))
    known = Dataset.range(1, 4).map(element, element_spec=spec)
    boundary: dict[str, Any] = {
        "pad_to_bucket_boundary": True,
        "element_length_func": lambda a, n, z: n,
    }
    (batch,) = known.bucket_by_sequence_length(
        bucket_boundaries=[6], bucket_batch_sizes=[3, 1], **boundary
    )
    assert [leaf.shape for leaf in batch] == [(3, 5, 2), (3,), (3, 3)]
    unknown = Dataset.range(1, 4).map(element)
    (batch,) = unknown.bucket_by_sequence_length(
        bucket_boundaries=[6], bucket_batch_sizes=[3, 1], **boundary
    )
    assert [leaf.shape for leaf in batch] == [(3, 5, 2), (3,), (3, 5)]
    (batch,) = unknown.bucket_by_sequence_length(
        bucket_boundaries=[6], bucket_batch_sizes=[3, 1], padded_shapes=([None, 2], [], [3]),
        **boundary,
    )  # fmt: skip
    assert [leaf.shape for leaf in batch] == [(3, 5, 2), (3,), (3, 3)]


def test_a_sequence_beyond_the_last_boundary_is_an_error() -> None:
    dataset = sequences().bucket_by_sequence_length(
        len, [3, 5], [2, 2, 2], pad_to_bucket_boundary=True
    )
    iterator = iter(dataset)
    next(iterator)
    with pytest.raises(InvalidArgumentError, match=r"shorter than the last of .*\[3, 5\]"):
        next(iterator)
    assert plain(list(iterator)) == [[[0, 0], [21, 22]]]


def test_a_length_must_be_an_int() -> None:
    wrong: Any = lambda _: "long"  # noqa: E731 - out of the checker's sight
    dataset = sequences().bucket_by_sequence_length(wrong, [3, 5], [2, 2, 2])
    words = r"`element_length_func` must return an int; .* 'long'"
    with pytest.raises(InvalidArgumentError, match=words):
        next(iter(dataset))


def test_a_padding_error_names_the_bucketing_call_site() -> None:
    dataset = sequences().bucket_by_sequence_length(
        len, [9], [2, 2], padded_shapes=[1]
    )  # fmt: skip
    line = dataset.node.site
    with pytest.raises(DataLossError, match="padded shape") as caught:
        next(iter(dataset))
    assert f"`padded_batch` ({line})" in caught.value.__notes__[0]


def test_without_padding_elements_are_stacked_as_they_are() -> None:
    dataset = Dataset.from_tensor_slices([[1, 2], [3, 4]])
    (batch,) = dataset.bucket_by_sequence_length(len, [3], [2, 2], no_padding=True)
    assert batch.tolist() == [[1, 2], [3, 4]]


def test_it_is_one_dataset_per_batch_size() -> None:
    dataset = sequences().bucket_by_sequence_length(len, [], [4])
    assert [len(batch) for batch in dataset] == [4, 2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"element_length_func": 3}, "element_length_func"),
        ({"bucket_batch_sizes": [2, 2]}, r"`len\(bucket_boundaries\) \+ 1`; got 2 sizes and 2"),
        ({"bucket_boundaries": [5, 3]}, "must ascend"),
        ({"bucket_boundaries": 3}, "`bucket_boundaries` must be an ascending list of ints; got 3"),
        ({"bucket_batch_sizes": 3}, "`bucket_batch_sizes` must be a list of ints .*; got 3"),
        ({"bucket_batch_sizes": [2, 0, 1]}, "bucket_batch_sizes"),
        ({"no_padding": 1}, "no_padding"),
        ({"padded_shapes": [-3]}, "padded_shapes"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "element_length_func": len, "bucket_boundaries": [3, 5], "bucket_batch_sizes": [2, 2, 2],
    }  # fmt: skip
    with pytest.raises(InvalidArgumentError, match=message):
        sequences().bucket_by_sequence_length(**{**given, **wrong})
