"""from_generator."""

from collections.abc import Iterator
from typing import Any

import pytest

from stoker import Dataset
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.tree.splits import Unsplittable


def test_each_epoch_calls_the_generator_with_its_arguments() -> None:
    dataset = Dataset.from_generator(lambda a, b: iter((a, b)), args=(1, "x"))
    assert [list(dataset), list(dataset.repeat(2))] == [[1, "x"], [1, "x", 1, "x"]]


def test_it_cannot_be_split_and_says_why() -> None:
    splits = Dataset.from_generator(list).node.splits()
    assert isinstance(splits, Unsplittable)
    assert "generator" in splits.why


def test_nothing_runs_before_it_is_read() -> None:
    called: list[int] = []

    def generate() -> Iterator[int]:
        called.append(1)
        yield 5

    iterator = iter(Dataset.from_generator(generate))
    assert called == []
    assert next(iterator) == 5


def test_an_error_takes_one_position_and_ends_a_generator() -> None:
    def generate() -> Iterator[int]:
        yield 1
        raise ValueError("broke")

    dataset = Dataset.from_generator(generate)
    iterator = iter(dataset)
    assert next(iterator) == 1
    with pytest.raises(ValueError, match="broke") as caught:
        next(iterator)
    origin = failure_origin(caught.value)
    assert origin is not None
    assert (origin.kind, origin.site, origin.index) == ("from_generator", dataset.node.site, 1)
    assert list(iterator) == []


def test_an_iterator_that_raises_goes_on() -> None:
    class Flaky:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> "Flaky":
            return self

        def __next__(self) -> int:
            self.at += 1
            if self.at == 2:
                raise ValueError("two")
            if self.at > 3:
                raise StopIteration
            return self.at

    assert list(Dataset.from_generator(Flaky).skip(2)) == [3]


@pytest.mark.parametrize("generator", [lambda: 5, lambda: 1 // 0])
def test_a_generator_that_cannot_start_is_one_error(generator: Any) -> None:
    iterator = iter(Dataset.from_generator(generator))
    with pytest.raises((TypeError, ZeroDivisionError)):
        next(iterator)
    assert list(iterator) == []


def test_closing_closes_the_generator() -> None:
    closed: list[bool] = []

    def generate() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    with Dataset.from_generator(generate).iterator() as iterator:
        next(iterator)
        assert closed == []
    assert closed == [True]
