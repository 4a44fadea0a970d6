"""flat_map."""

from typing import Any

import pytest

from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.tree.node import Context
from stoker.dataset.tree.splits import Unsplittable
from stoker.dataset.tree.structure import source_summary
from stoker.errors import InvalidArgumentError
from tests.dataset.splits import ScriptedSplits


def test_datasets_come_one_after_the_other() -> None:
    assert list(Dataset.range(4).flat_map(Dataset.range)) == [0, 0, 1, 0, 1, 2]


def test_tuples_are_unpacked() -> None:
    pairs = Dataset.range(3).map(lambda x: (x, 2 * x))
    assert list(pairs.flat_map(Dataset.range)) == [1, 2, 3]


def test_another_type_than_a_dataset_is_one_error_naming_it() -> None:
    dataset = Dataset.range(2).flat_map(lambda x: Dataset.range(3) if x else [1, 2])  # type: ignore[arg-type,return-value]
    iterator = iter(dataset)
    with pytest.raises(InvalidArgumentError, match="returned a list") as caught:
        next(iterator)
    origin = failure_origin(caught.value)
    assert origin is not None
    assert origin == ("flat_map", dataset.node.site, 0, "0")
    assert list(iterator) == [0, 1, 2]


def test_an_error_inside_a_dataset_is_a_position_of_it() -> None:
    dataset = Dataset.range(2).flat_map(lambda _: Dataset.range(3).map(lambda x: 6 // (x - 1)))
    stream = open_stream(dataset.node, Context())
    seen: list[Any] = []
    for _ in range(6):
        try:
            seen.append(stream.next())
        except ZeroDivisionError as error:
            seen.append(failure_origin(error).kind)  # type: ignore[union-attr]
    assert seen == [-6, "map", 6, -6, "map", 6]


def test_advance_counts_errors_and_opens_only_needed_datasets() -> None:
    def nested(x: int) -> Dataset:
        if x == 1:
            raise ValueError(x)
        return Dataset.range(10**12)

    stream = open_stream(Dataset.range(3).flat_map(nested).node, Context())
    assert stream.advance(10**12 + 3) == 10**12 + 3
    assert stream.next() == 2


def test_nested_shuffles_differ_by_element_and_agree_by_seed() -> None:
    def nested(_: int) -> Dataset:
        return Dataset.range(20).shuffle(20)

    dataset = Dataset.range(2).flat_map(nested)
    tree = dataset.node
    first, again = (open_stream(tree, Context(seed=3)) for _ in range(2))
    one = [first.next_chunk(1, 1)[0] for _ in range(40)]
    assert [again.next_chunk(1, 1)[0] for _ in range(40)] == one
    assert one[:20] != one[20:]
    both = open_stream(dataset.flat_map(lambda x: Dataset.range(x, x + 1)).node, Context(seed=3))
    assert [both.next() for _ in range(40)] == one


def test_datasets_built_inside_are_not_split() -> None:
    dataset = Dataset.range(9).flat_map(Dataset.range)
    (source,) = source_summary(dataset.node)
    assert not isinstance(source.splits, Unsplittable)
    stream = open_stream(dataset.node, Context(splits=ScriptedSplits({0: [[(2, 4)]]})))
    assert [stream.next() for _ in range(5)] == [0, 1, 0, 1, 2]
    assert stream.advance(1) == 0
