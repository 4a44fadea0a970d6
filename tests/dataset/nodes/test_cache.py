"""cache: a whole pass is kept and read again."""

from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

import numpy as np
import pytest

from stoker import Dataset, Options
from stoker.dataset.nodes.batch import Batch
from stoker.dataset.nodes.cache import Cache
from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.range import Range
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context
from stoker.elements.ragged import RaggedArray


def cached(function: Any, n: int = 10) -> Cache:
    source = Range(start=0, stop=n, step=1)
    return Cache(input=Map(input=source, function=Pickled.of(function)))


def read(stream: Stream, *, chunks: bool = False) -> list[Any]:
    out: list[Any] = []
    while True:
        try:
            chunk = stream.next_chunk(4, 1 << 20) if chunks else [stream.next()]
        except StopIteration:
            return out
        except ValueError as error:
            out.append(repr(error))
            continue
        if not chunk:
            return out
        out += chunk


def counting() -> tuple[Cache, list[int]]:
    called: list[int] = []

    def function(x: int) -> int:
        called.append(x)
        if x == 6:
            raise ValueError(x)
        return x

    return cached(function), called


EXPECTED = [0, 1, 2, 3, 4, 5, "ValueError(6)", 7, 8, 9]


@pytest.mark.parametrize("chunks", [False, True])
def test_a_second_epoch_computes_nothing_and_is_the_same(chunks: bool) -> None:
    node, called = counting()
    for epoch in range(3):
        assert read(open_stream(node, Context(epoch=(epoch,))), chunks=chunks) == EXPECTED
    assert called == list(range(10))


def test_the_cache_is_the_node_s_also_under_a_rewritten_one() -> None:
    called: list[int] = []

    def function(x: int) -> int:
        called.append(x)
        return x

    source = Map(
        input=Range(start=0, stop=4, step=1),
        function=Pickled.of(function),
        num_parallel_calls=2,
    )
    node = Batch(input=Cache(input=Batch(input=source, batch_size=2)), batch_size=2)
    for _ in range(2):
        stream = open_stream(node, Context())
        assert stream.next().tolist() == [[0, 1], [2, 3]]
        assert stream.next_chunk(1, 1) == []
        stream.close()
    assert sorted(called) == [0, 1, 2, 3]


def test_another_node_has_another_cache() -> None:
    (one, called), (other, called_by_other) = counting(), counting()
    read(open_stream(one, Context()))
    read(open_stream(other, Context()))
    assert called == called_by_other == list(range(10))


@pytest.mark.parametrize("taken", [0, 9, 10])
def test_an_epoch_not_read_to_its_end_is_not_cached(taken: int) -> None:
    node, called = counting()
    stream = open_stream(node, Context())
    stream.next_chunk(1, 1)
    for _ in range(taken - 1):
        read_one(stream)
    stream.close()
    called.clear()
    assert read(open_stream(node, Context())) == EXPECTED
    assert called == list(range(10))


def read_one(stream: Stream) -> None:
    try:
        stream.next()
    except ValueError:
        return


def test_an_epoch_with_skipped_elements_is_not_cached() -> None:
    node, called = counting()
    stream = open_stream(node, Context())
    assert stream.advance(1) == 1
    assert read(stream) == EXPECTED[1:]
    assert read(open_stream(node, Context())) == EXPECTED
    assert called == [*range(1, 10), *range(10)]


@pytest.mark.parametrize("skip", [0, 1, 6, 7, 10, 99])
def test_advance_over_a_complete_cache_equals_dropping(skip: int) -> None:
    node, _ = counting()
    read(open_stream(node, Context()))
    stream = open_stream(node, Context())
    assert stream.next() == 0
    assert stream.advance(skip) == min(skip, 9)
    assert read(stream, chunks=True) == EXPECTED[1 + skip :]


def test_the_first_of_two_epochs_to_end_fills_the_cache() -> None:
    node, called = counting()
    one, other = open_stream(node, Context()), open_stream(node, Context())
    assert one.next() == other.next() == 0
    assert read(one) == EXPECTED[1:]
    assert read(other) == EXPECTED[1:]
    called.clear()
    assert read(open_stream(node, Context())) == EXPECTED
    assert called == []


def test_arrays_are_read_only_in_every_epoch() -> None:
    node = cached(lambda x: {"a": np.full(3, x), "r": RaggedArray.from_rows([[x], []])})
    for _ in range(2):
        stream = open_stream(node, Context())
        element = stream.next_chunk(1, 1)[0]
        assert element["a"].tolist() == [0, 0, 0]
        for array in (element["a"], element["r"].values, element["r"].row_splits):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
        read(open_stream(node, Context()))


def test_a_reader_may_change_its_containers() -> None:
    node = cached(lambda x: {"x": [x, np.zeros(1)]}, 2)
    for _ in range(3):
        elements = read(open_stream(node, Context()))
        assert [element["x"][0] for element in elements] == [0, 1]
        for element in elements:
            element["x"].clear()
            element.pop("x")


class Splits:
    """Splits of one range."""

    draining = False

    def __init__(self, start: int, stop: int) -> None:
        self.range = (start, stop)

    def open(self, source: int) -> Iterator[Any]:
        return iter([self.range])


def test_each_assignment_of_splits_has_a_separate_cache() -> None:
    node = cached(lambda x: x)
    for splits in (Splits(0, 3), Splits(3, 10)):
        expected = list(range(*splits.range))
        assert read(open_stream(node, Context(splits=splits))) == expected
        assert read(open_stream(node, Context(splits=splits))) == expected
    assert read(open_stream(node, Context())) == list(range(10))


def test_elements_drawn_by_another_seed_are_not_read() -> None:
    shuffled = Dataset.range(20).shuffle(20)
    fresh = {seed: list(shuffled.with_options(Options(seed=seed))) for seed in (1, 2)}
    assert fresh[1] != fresh[2]
    cached = shuffled.cache()
    for seed in (1, 2, 2, 1):
        assert list(cached.with_options(Options(seed=seed)).iterator(epoch=1)) == fresh[seed]


def test_other_seeds_share_elements_that_are_not_drawn() -> None:
    called: list[int] = []

    def square(x: int) -> int:
        called.append(x)
        return x * x

    cached = Dataset.range(5).shuffle(5, seed=1).map(square).cache()
    first = list(cached.with_options(Options(seed=1)))
    assert list(cached.with_options(Options(seed=2))) == first
    assert len(called) == 5


def test_a_state_with_other_drawn_seeds_is_resumed_with_its_elements() -> None:
    def pipeline() -> Dataset:
        return Dataset.range(20).shuffle(20).cache()

    iterator = iter(pipeline())
    before = [next(iterator) for _ in range(5)]
    other = pipeline()
    list(other)
    resumed = list(other.iterator(state=iterator.state_dict()))
    assert resumed == list(iterator)
    assert sorted(before + resumed) == list(range(20))
    assert list(other) == before + resumed


def test_error_that_each_epoch_raises_does_not_grow() -> None:
    dataset = Dataset.range(2).map(lambda i: 1 // i).cache()
    depths = []
    for _ in range(4):
        iterator = iter(dataset)
        try:  # pytest.raises would add frames
            next(iterator)
        except ZeroDivisionError as error:
            depths.append(len(list(walk_tb(error.__traceback__))))
        assert list(iterator) == [1]
    assert depths[1:] == depths[1:2] * 3
