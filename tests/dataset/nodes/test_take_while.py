"""take_while."""

import pytest

import stoker
from stoker import Dataset
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened


def test_it_ends_before_the_first_that_is_not_accepted() -> None:
    assert list(Dataset.range(10).take_while(lambda x: x % 5 != 4)) == [0, 1, 2, 3]
    assert list(Dataset.range(10).take_while(lambda x: True)) == list(range(10))
    assert list(Dataset.range(10).take_while(lambda x: False)) == []


def test_tuples_are_unpacked() -> None:
    pairs = Dataset.range(6).map(lambda x: (x, x))
    assert list(pairs.take_while(lambda a, b: a + b < 4)) == [(0, 0), (1, 1)]


def flaky(x: int) -> bool:
    if x % 3 == 1:
        raise ValueError(f"no {x}")
    return x < 20


def test_all_verbs_read_the_same_stream() -> None:
    found = check_verbs(lambda: Dataset.range(50).take_while(flaky))
    assert len(found) == 20
    assert [position for position in found if isinstance(position, int)] == [
        0, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18,
    ]  # fmt: skip


def test_errors_name_their_place() -> None:
    dataset = Dataset.range(5).take_while(flaky)
    stream = opened(dataset)
    assert stream.next_chunk(5, 1 << 20) == [0]
    with pytest.raises(ValueError, match="no 1") as caught:
        stream.next_chunk(5, 1 << 20)
    assert failure_origin(caught.value) == ("take_while", dataset.node.site, 1, "1")


def test_the_predicate_is_not_called_after_the_end() -> None:
    called: list[int] = []

    def below_two(x: int) -> bool:
        called.append(x)
        return x < 2

    stream = opened(Dataset.range(100).take_while(below_two))
    assert stream.advance(50) == 2
    assert stream.advance(50) == 0
    assert stream.next_chunk(50, 1 << 20) == []
    assert called == [0, 1, 2]


def test_no_more_is_read_than_is_asked_for() -> None:
    called: list[int] = []
    dataset = Dataset.range(100).map(called.append).take_while(lambda x: x is None)
    stream = opened(dataset.take(3))
    while stream.next_chunk(50, 1 << 20):
        pass
    assert called == [0, 1, 2]


def test_an_endless_input_ends() -> None:
    assert list(Dataset.range(3).repeat().enumerate().take_while(lambda i, x: i < 4)) == [
        (0, 0), (1, 1), (2, 2), (3, 0),
    ]  # fmt: skip


def test_functions_draw_by_seed_and_position() -> None:
    def lucky(x: int) -> bool:
        return bool(stoker.random.generator().random() < 0.98)

    check_verbs(lambda: Dataset.range(400).take_while(lucky))


def test_spec_and_cardinality() -> None:
    dataset = Dataset.range(3).repeat().take_while(bool)
    assert dataset.element_spec == Dataset.range(3).element_spec
    assert dataset.cardinality() == UNKNOWN_CARDINALITY
    assert Dataset.range(0).take_while(bool).cardinality() == 0


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match="predicate"):
        Dataset.range(3).take_while(1)  # type: ignore[arg-type]
