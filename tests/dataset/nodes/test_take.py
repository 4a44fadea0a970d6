"""take and skip."""

import pytest

from stoker import Dataset
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context


@pytest.mark.parametrize("count", [0, 1, 3, 5, 9])
def test_take_and_skip_part_the_input(count: int) -> None:
    dataset = Dataset.range(5)
    assert list(dataset.take(count)) == list(range(5))[:count]
    assert list(dataset.skip(count)) == list(range(5))[count:]


@pytest.mark.parametrize("count", [-1, -2, -9])
def test_a_negative_count_is_all(count: int) -> None:
    assert list(Dataset.range(3).take(count)) == [0, 1, 2]
    assert Dataset.range(3).take(count).cardinality() == 3
    assert list(Dataset.range(3).skip(count)) == []
    assert Dataset.range(3).skip(count).cardinality() == 0


def test_take_reads_no_more_of_its_input_than_it_gives() -> None:
    called: list[int] = []
    dataset = Dataset.range(100).map(called.append)
    stream = open_stream(dataset.take(3).node, Context())
    while stream.next_chunk(50, 1 << 20):
        pass
    assert called == [0, 1, 2]
    list(dataset.take(0))
    assert called == [0, 1, 2]


def test_skip_does_not_call_the_functions_of_what_it_skips() -> None:
    called: list[int] = []
    list(Dataset.range(5).map(called.append).skip(3))
    assert called == [3, 4]


def test_an_element_that_fails_counts() -> None:
    failing = Dataset.range(5).map(lambda x: 6 // (x - 1))
    assert list(failing.skip(2)) == [6, 3, 2]
    stream = open_stream(failing.take(3).node, Context())
    assert stream.next() == -6
    with pytest.raises(ZeroDivisionError):
        stream.next_chunk(5, 100)
    assert [stream.next_chunk(5, 100), stream.next_chunk(5, 100)] == [[6], []]


def test_opening_skips_nothing_yet() -> None:
    called: list[int] = []

    def accept(x: int) -> bool:
        called.append(x)
        return True

    dataset = Dataset.range(5).filter(accept).skip(2)
    stream = open_stream(dataset.node, Context())
    assert called == []
    assert stream.next() == 2
    assert called == [0, 1, 2]
