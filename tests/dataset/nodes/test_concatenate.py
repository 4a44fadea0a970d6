"""concatenate."""

import numpy as np
import pytest

import stoker
from stoker import Dataset, Options, TensorSpec, UnknownSpec
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, failed, opened, tape


def test_one_dataset_comes_after_the_other() -> None:
    dataset = Dataset.range(2).concatenate(Dataset.range(0)).concatenate(Dataset.range(5, 7))
    assert list(dataset) == [0, 1, 5, 6]
    assert list(dataset) == [0, 1, 5, 6]


def test_all_verbs_read_the_same_stream() -> None:
    def make() -> Dataset:
        failing = Dataset.range(9).map(lambda x: 6 // (x - 4))
        odd = Dataset.range(30).filter(lambda x: x % 2)
        return failing.concatenate(odd).concatenate(Dataset.range(20).shuffle(5)).concatenate(odd)

    expected = check_verbs(make)
    assert len(expected) == 9 + 15 + 20 + 15
    assert expected[4] == failed(ZeroDivisionError("integer division or modulo by zero"))


def test_a_part_is_opened_when_it_is_reached() -> None:
    opened_: list[int] = []

    def generate() -> list[int]:
        opened_.append(1)
        return [7]

    stream = opened(Dataset.range(2).map(int).concatenate(Dataset.from_generator(generate)))
    assert [stream.next(), stream.next()] == [0, 1]
    assert opened_ == []
    assert stream.next() == 7


def test_advance_does_not_open_a_wholly_skipped_dataset() -> None:
    class Closed(Exception):
        pass

    def refuse(_: object) -> int:
        raise Closed

    dataset = Dataset.range(10**9).map(refuse).concatenate(Dataset.range(5))
    with dataset.iterator() as iterator:
        stream = iterator._stream
        assert stream.advance(10**9 + 2) == 10**9 + 2
        assert stream.next() == 2
    # A length that may be less than it says is read.
    short = Dataset.range(3).filter(lambda x: x > 0).take(5)
    stream = opened(short.concatenate(Dataset.range(10)))
    assert stream.advance(6) == 6
    assert stream.next() == 4


def test_a_dataset_concatenated_with_itself_is_read_twice() -> None:
    shuffled = Dataset.range(20).shuffle(20, seed=1)
    elements = tape(shuffled.concatenate(shuffled))
    assert sorted(elements[:20]) == sorted(elements[20:]) == list(range(20))


def test_a_long_chain_is_one_node() -> None:
    dataset = Dataset.range(1)
    for i in range(500):
        dataset = dataset.concatenate(Dataset.range(i, i + 1))
    assert sum(dataset) == sum(range(500))
    assert len(dataset) == 501
    assert list(Dataset(decode_tree(encode_tree(dataset.node))).skip(500)) == [499]


FINITE = Dataset.range(3)
ENDLESS, UNKNOWN = FINITE.repeat(), FINITE.filter(lambda _: True)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (FINITE, FINITE, 6),
        (FINITE, ENDLESS, stoker.INFINITE_CARDINALITY),
        (UNKNOWN, ENDLESS, stoker.INFINITE_CARDINALITY),
        (FINITE, UNKNOWN, stoker.UNKNOWN_CARDINALITY),
    ],
)
def test_cardinality_is_the_sum(left: Dataset, right: Dataset, expected: int) -> None:
    assert left.concatenate(right).cardinality() == expected


def test_spec_covers_both() -> None:
    rows = Dataset.from_tensor_slices(np.zeros((2, 3)))
    longer = Dataset.from_tensor_slices(np.zeros((2, 4)))
    assert rows.concatenate(longer).element_spec == TensorSpec((None,), "float64")
    assert rows.concatenate(longer.map(np.sum)).element_spec == UnknownSpec()
    scalars = Dataset.from_tensor_slices(np.zeros(2))
    assert rows.concatenate(scalars).element_spec == UnknownSpec()
    pairs = Dataset.from_tensor_slices({"a": [1], "b": np.zeros((1, 2))})
    other = Dataset.from_tensor_slices({"b": np.zeros((1, 1)), "a": [1]})
    spec = {"a": TensorSpec((), "int64"), "b": TensorSpec((None,), "float64")}
    assert pairs.concatenate(other).element_spec == spec


@pytest.mark.parametrize(
    "other",
    [
        Dataset.from_tensor_slices([1.5]),
        Dataset.from_tensor_slices(["a"]),
        Dataset.from_tensors((1, 2)),
        Dataset.from_tensors({"a": 1}),
    ],
)
def test_elements_of_another_kind_are_refused(other: Dataset) -> None:
    with pytest.raises(InvalidArgumentError, match="only datasets with elements of one structure"):
        Dataset.range(3).concatenate(other)


def test_something_else_than_a_dataset_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="`dataset` must be a Dataset; got 3"):
        Dataset.range(3).concatenate(3)  # type: ignore[arg-type]


def test_options_of_both_are_merged() -> None:
    dataset = Dataset.range(3).concatenate(Dataset.range(3).with_options(Options(threads=2)))
    assert dataset.options().threads == 2


def test_an_error_of_opening_a_part_is_a_position_that_skip_passes() -> None:
    unset = Dataset.range(2).shard(stoker.SHARD_HINT, 0)
    assert list(unset.concatenate(Dataset.range(5, 7)).skip(1)) == [5, 6]
