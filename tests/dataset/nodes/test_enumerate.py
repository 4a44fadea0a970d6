"""enumerate."""

import pytest

from stoker import Dataset, TensorSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, failed, opened, tape

INT = TensorSpec((), "int64")


def test_positions_begin_at_start_and_are_python_ints() -> None:
    pairs = list(Dataset.from_tensor_slices(["a", "b"]).enumerate(start=7))
    assert pairs == [(7, "a"), (8, "b")]
    assert type(pairs[0][0]) is int
    assert list(Dataset.range(3).enumerate().map(lambda i, x: i + x)) == [0, 2, 4]


def test_all_verbs_read_the_same_stream() -> None:
    check_verbs(lambda: Dataset.range(50).filter(lambda x: 1 // (x % 5)).enumerate(-3))
    check_verbs(lambda: Dataset.zip(Dataset.range(9), Dataset.range(9)).enumerate())


def test_an_element_that_fails_has_a_position_too() -> None:
    no = failed(ZeroDivisionError("integer division or modulo by zero"))
    assert tape(Dataset.range(3).map(lambda x: 1 // (x - 1)).enumerate()) == [(0, -1), no, (2, 1)]


def test_advance_costs_what_the_inputs_does() -> None:
    called: list[int] = []
    stream = opened(Dataset.range(10**9).map(called.append).enumerate())
    assert stream.advance(10**8) == 10**8
    assert stream.next() == (10**8, None)
    assert called == [10**8]


def test_spec_and_cardinality() -> None:
    dataset = Dataset.range(5).enumerate()
    assert dataset.element_spec == (INT, INT)
    assert len(dataset) == 5
    assert Dataset.range(5).repeat().enumerate().cardinality() == -1


def test_start_must_be_an_int() -> None:
    with pytest.raises(InvalidArgumentError, match="`start` must be an int of 64 bits; got 'a'"):
        Dataset.range(3).enumerate("a")  # type: ignore[arg-type]
