"""reduce and get_single_element: what reads a pass and returns a value."""

import re

import pytest

from stoker import Dataset
from stoker.errors import InvalidArgumentError


def test_elements_are_folded_into_the_state() -> None:
    assert Dataset.range(5).reduce(10, lambda total, x: total + x) == 20
    assert Dataset.range(0).reduce("nothing", lambda total, x: total) == "nothing"
    means = Dataset.range(1, 4).reduce((0, 0), lambda s, x: (s[0] + x, s[1] + 1))
    assert means == (6, 3)


def test_a_tuple_is_one_argument() -> None:
    pairs = Dataset.range(3).map(lambda x: (x, x))
    assert pairs.reduce(0, lambda total, pair: total + pair[0] * pair[1]) == 5


def test_an_error_ends_it_and_leaves_no_thread() -> None:
    broken = Dataset.range(9).map(lambda x: 6 // (x - 3), num_parallel_calls=2).prefetch(1)
    with pytest.raises(ZeroDivisionError):
        broken.reduce(0, lambda total, x: total + x)
    with pytest.raises(LookupError):
        Dataset.range(9).prefetch(1).reduce({}, lambda table, x: table[x] or table)


def test_each_call_is_a_pass() -> None:
    shuffled = Dataset.range(50).shuffle(50, seed=1)
    first, second = (shuffled.reduce([], lambda found, x: [*found, x]) for _ in range(2))
    assert sorted(first) == sorted(second)
    assert first != second


def test_a_function_is_needed() -> None:
    with pytest.raises(InvalidArgumentError, match="reduce_func"):
        Dataset.range(3).reduce(0, 1)  # type: ignore[arg-type]


def test_the_single_element_is_read() -> None:
    assert Dataset.range(7, 8).get_single_element() == 7
    assert Dataset.range(4).prefetch(1).batch(4).get_single_element().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("count", "message"), [(0, "was empty"), (2, "more than one element")])
def test_none_or_several_are_an_error(count: int, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        Dataset.range(count).repeat().take(count).prefetch(1).get_single_element()


def test_its_own_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        Dataset.range(1).map(lambda x: 1 // x).get_single_element()
