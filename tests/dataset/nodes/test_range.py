"""range."""

import pytest

from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context
from stoker.dataset.tree.splits import IndexSplits


@pytest.mark.parametrize("args", [(5,), (2, 9), (9, 2), (9, 2, -3), (0, 10, 4), (0,), (-3, 3)])
def test_it_yields_what_pythons_range_does(args: tuple[int, ...]) -> None:
    dataset = Dataset.range(*args)
    assert list(dataset) == list(range(*args))
    assert all(type(element) is int for element in dataset)
    assert dataset.cardinality() == len(range(*args))
    assert dataset.node.splits() == IndexSplits(len(range(*args)))


def test_advance_takes_no_time_that_depends_on_the_distance() -> None:
    stream = open_stream(Dataset.range(10**18).node, Context())
    assert stream.advance(10**18 - 2) == 10**18 - 2
    assert stream.next_chunk(10, 1 << 20) == [10**18 - 2, 10**18 - 1]
    assert stream.next_chunk(10, 1 << 20) == []
    assert stream.advance(1) == 0


def test_chunks_keep_to_elements_and_bytes() -> None:
    stream = open_stream(Dataset.range(100).node, Context())
    assert stream.next_chunk(3, 1 << 20) == [0, 1, 2]
    assert stream.next_chunk(50, 32) == [3, 4, 5, 6]
    assert stream.next_chunk(50, 1) == [7]
    assert stream.next() == 8
    assert stream.advance(5) == 5
    assert stream.next() == 14
