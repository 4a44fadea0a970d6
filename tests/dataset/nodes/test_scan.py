"""scan."""

from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stoker.elements.spec import TensorSpec, UnknownSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened, positions, tape


def total(state: int, x: int) -> tuple[int, int]:
    return state + x, state + x


def test_the_state_is_handed_on() -> None:
    assert list(Dataset.range(6).scan(0, total)) == [0, 1, 3, 6, 10, 15]
    assert list(Dataset.range(3).scan(0, lambda s, x: [s + 1, (s, x)])) == [(0, 0), (1, 1), (2, 2)]  # type: ignore[arg-type,return-value]


def test_a_tuple_is_one_argument() -> None:
    pairs = Dataset.range(4).map(lambda x: (x, x))
    assert list(pairs.scan(0, lambda s, pair: (s + pair[0] * pair[1], s))) == [0, 0, 1, 5]


def flaky(state: int, x: int) -> tuple[int, int]:
    if x % 5 == 3:
        raise ValueError(f"no {x}")
    return state + x, state


def test_a_failed_call_keeps_the_state_in_all_verbs() -> None:
    found = check_verbs(
        lambda: Dataset.range(12).map(lambda x: x + 0 * (1 // (x - 6))).scan(100, flaky)
    )
    assert [position if isinstance(position, int) else position[1] for position in found] == [
        100, 100, 101, "ValueError", 103, 107,
        "ZeroDivisionError", 112, "ValueError", 119, 128, 138,
    ]  # fmt: skip


def test_errors_name_their_place() -> None:
    dataset = Dataset.range(5).scan(0, flaky)
    stream = opened(dataset)
    assert stream.advance(3) == 3
    with pytest.raises(ValueError, match="no 3") as caught:
        stream.next()
    assert failure_origin(caught.value) == ("scan", dataset.node.site, 3, "3")


@pytest.mark.parametrize("result", [3, (1,), (1, 2, 3), None, "ab"])
def test_anything_but_a_pair_is_an_error(result: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must return \(new_state, element\)"):
        next(iter(Dataset.range(1).scan(0, lambda s, x: result)))


def test_each_epoch_begins_with_the_initial_state() -> None:
    def collect(state: dict[str, Any], x: int) -> tuple[Any, Any]:
        state["seen"].append(x)
        return state, list(state["seen"])

    dataset = Dataset.range(2).scan({"seen": []}, collect)
    assert list(dataset) == list(dataset) == [[0], [0, 1]]
    assert list(dataset.repeat(2)) == [[0], [0, 1]] * 2

    def add_in_place(state: Any, x: int) -> tuple[Any, Any]:
        state += x
        return state, state

    with pytest.raises(ValueError, match="read-only"):
        next(iter(Dataset.range(2).scan(np.zeros(2), add_in_place)))


def test_advance_calls_the_function() -> None:
    called: list[int] = []

    def note(state: int, x: int) -> tuple[int, int]:
        called.append(x)
        return x, state

    stream = opened(Dataset.range(9).scan(-1, note))
    assert stream.advance(4) == 4
    assert called == [0, 1, 2, 3]
    assert positions(stream, 1) == [3]


def test_a_chunk_of_slow_calls_ends_early() -> None:
    def slow(state: int, x: int) -> tuple[int, int]:
        return sum(range(50_000)), x

    stream = opened(Dataset.range(40).scan(0, slow))
    assert len(stream.next_chunk(40, 1 << 20)) < 20


def test_functions_draw_by_seed_and_position() -> None:
    def draw(state: int, x: int) -> tuple[int, int]:
        return state, int(stoker.random.generator().integers(1000))

    found = check_verbs(lambda: Dataset.range(30).scan(0, draw))
    assert len(set(found)) > 20
    assert tape(Dataset.range(30).scan(0, draw), epoch=(3,)) != found


def test_spec_and_cardinality() -> None:
    dataset = Dataset.range(3).scan(0, total)
    assert dataset.element_spec == UnknownSpec()
    assert dataset.cardinality() == 3
    assert Dataset.range(3).repeat().scan(0, total).cardinality() == INFINITE_CARDINALITY
    assert Dataset.range(3).filter(bool).scan(0, total).cardinality() == UNKNOWN_CARDINALITY
    spec = TensorSpec((), np.int64)
    assert Dataset.range(3).scan(0, total, element_spec=spec).element_spec == spec


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match="scan_func"):
        Dataset.range(3).scan(0, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="element_spec"):
        Dataset.range(3).scan(0, total, element_spec=1)


def test_after_close_there_is_nothing() -> None:
    stream = opened(Dataset.range(9).scan(0, total))
    stream.next()
    stream.close()
    assert stream.next_chunk(5, 100) == []
