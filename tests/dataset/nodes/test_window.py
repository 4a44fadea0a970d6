"""window."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from stoker import Dataset
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.tree.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stoker.elements.spec import TensorSpec, UnknownSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened, plain, positions, tape


def windows(count: int, size: int, shift: int, stride: int, drop: bool) -> list[list[int]]:
    """The windows, from their definition."""
    found = [list(range(start, count, stride))[:size] for start in range(0, count, shift)]
    return [window for window in found if len(window) == size or not drop]


SHAPES = list(itertools.product([1, 2, 3, 5], [1, 2, 3, 4, 7], [1, 2, 3, 4], [False, True]))


@pytest.mark.parametrize(("size", "shift", "stride", "drop"), SHAPES)
def test_windows_are_those_of_the_definition(
    size: int, shift: int, stride: int, drop: bool
) -> None:
    for count in (0, 1, 4, 11, 23):
        dataset = Dataset.range(count).window(size, shift, stride, drop)
        expected = windows(count, size, shift, stride, drop)
        assert [list(window) for window in dataset] == expected
        assert dataset.cardinality() == len(expected)
        stream = opened(dataset)
        passed = stream.advance(2)
        assert passed == min(2, len(expected))
        assert positions(stream) == expected[2:]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [  # the results of tf.data 2.21 for range(7)
        ((3,), [[0, 1, 2], [3, 4, 5], [6]]),
        ((3, 1, 2), [[0, 2, 4], [1, 3, 5], [2, 4, 6], [3, 5], [4, 6], [5], [6]]),
        ((2, 3, 1), [[0, 1], [3, 4], [6]]),
        ((3, None, 2), [[0, 2, 4], [3, 5], [6]]),
    ],
)
def test_windows_are_those_of_tf_data(arguments: tuple[Any, ...], expected: list[Any]) -> None:
    assert [list(window) for window in Dataset.range(7).window(*arguments)] == expected


def flaky(x: int) -> int:
    if x % 7 == 3:
        raise ValueError(f"no {x}")
    return x


@pytest.mark.parametrize(("size", "shift", "stride", "drop"), SHAPES[::5])
def test_all_verbs_read_the_same_stream(size: int, shift: int, stride: int, drop: bool) -> None:
    found = check_verbs(
        lambda: Dataset.range(24).map(flaky).window(size, shift, stride, drop), mixes=5
    )
    for position, window in zip(found, windows(24, size, shift, stride, drop), strict=True):
        broken = [x for x in window if x % 7 == 3]
        assert position == (("raised", "ValueError", f"no {broken[0]}") if broken else window)


class Pair(NamedTuple):
    a: int
    b: str


@dataclasses.dataclass
class Point:
    x: int
    y: float


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: (x, -x), ([0, 1], [0, -1])),
        (lambda x: {"a": x, "b": (x, [x] * x)}, {"a": [0, 1], "b": ([0, 1], [[], [1]])}),
        (lambda x: Pair(x, str(x)), Pair([0, 1], ["0", "1"])),  # type: ignore[arg-type]
        (lambda x: [x, x], [[0, 0], [1, 1]]),
        (lambda x: None, [None, None]),
    ],
)
def test_a_window_of_structures_is_a_structure_of_datasets(make: Any, expected: Any) -> None:
    (window,) = Dataset.range(2).map(make).window(2)
    assert plain(window) == expected
    if not isinstance(window, Dataset):
        assert type(window) is type(expected)


def test_dataclasses_too() -> None:
    (window,) = Dataset.range(2).map(lambda x: Point(x, x / 2)).window(2)
    assert type(window) is Point
    assert [list(window.x), list(window.y)] == [[0, 1], [0.0, 0.5]]  # type: ignore[call-overload]


def test_members_are_matched_by_their_keys() -> None:
    dicts = Dataset.range(2).map(lambda x: {"a": x, "b": -x} if x else {"b": -x, "a": x})
    (window,) = dicts.window(2)
    assert plain(window) == {"a": [0, 1], "b": [0, -1]}


def test_mixed_structures_are_an_error_at_the_windows_position() -> None:
    dataset = Dataset.range(6).map(lambda x: (x, x) if x == 3 else {"a": x}).window(2)
    found = check_verbs(lambda: dataset)
    assert found[0] == {"a": [0, 1]}
    assert "must have one structure" in found[1][2]
    assert found[2] == {"a": [4, 5]}
    iterator = iter(dataset)
    next(iterator)
    with pytest.raises(InvalidArgumentError) as caught:
        next(iterator)
    assert failure_origin(caught.value) == ("window", dataset.node.site, 1, "")


def test_windows_work_with_all_methods() -> None:
    dataset = Dataset.range(10).window(4, 2)
    sums = dataset.flat_map(lambda window: window.shuffle(4).batch(4)).map(lambda a: int(a.sum()))
    assert list(sums) == [6, 14, 22, 30, 17]
    nested = Dataset.range(8).window(2).window(2)
    assert [[list(w) for w in windows] for windows in nested] == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
    ]
    pairs = Dataset.range(4).map(lambda x: (x, 10 * x)).window(2)
    assert list(pairs.flat_map(lambda a, b: b.batch(2)).map(list)) == [[0, 10], [20, 30]]


def test_arrays_of_overlapping_windows_are_read_only() -> None:
    arrays = Dataset.range(3).map(lambda x: np.full(2, x))
    first, *_ = arrays.window(2, 1)
    for array in first:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_elements_in_no_window_are_not_computed() -> None:
    called: list[int] = []

    def note(x: int) -> int:
        called.append(x)
        return x

    dataset = Dataset.range(12).map(note).window(2, 4, 2)
    assert [list(window) for window in dataset] == [[0, 2], [4, 6], [8, 10]]
    assert called == [0, 2, 4, 6, 8, 10]
    called.clear()
    stream = opened(Dataset.range(10**12).map(note).window(3, 5))
    assert stream.advance(10**11) == 10**11
    assert called == []
    assert positions(stream, 1) == [[5 * 10**11, 5 * 10**11 + 1, 5 * 10**11 + 2]]
    assert len(called) == 3


def test_opening_reads_nothing() -> None:
    called: list[int] = []
    stream = opened(Dataset.range(12).map(called.append).window(2))
    assert called == []
    stream.next()
    assert called == [0, 1]


def test_spec_and_cardinality() -> None:
    pairs = Dataset.from_tensor_slices({"a": [1, 2, 3], "b": ([1, 2, 3],)})
    assert pairs.window(2).element_spec == {"a": UnknownSpec(), "b": (UnknownSpec(),)}
    (first, _) = pairs.window(2)
    assert first["a"].element_spec == TensorSpec((), np.int64)
    assert Dataset.range(2).map(str).window(2).element_spec == UnknownSpec()
    assert Dataset.range(5).repeat().window(2).cardinality() == INFINITE_CARDINALITY
    assert Dataset.range(5).filter(bool).window(2).cardinality() == UNKNOWN_CARDINALITY


@pytest.mark.parametrize(
    "wrong", [{"size": 0}, {"shift": 0}, {"stride": 0}, {"drop_remainder": None}]
)
def test_wrong_arguments_are_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidArgumentError, match=name):
        Dataset.range(3).window(**{"size": 2, **wrong})


def test_epochs_are_equal_and_after_close_there_is_nothing() -> None:
    dataset = Dataset.range(5).window(2, 1).repeat(2)
    assert tape(dataset) == 2 * [[0, 1], [1, 2], [2, 3], [3, 4], [4]]
    stream = opened(dataset)
    stream.next()
    stream.close()
    assert stream.next_chunk(5, 100) == []


def test_a_chunk_reads_no_more_than_its_bytes_ahead() -> None:
    computed: list[int] = []

    def large(x: int) -> Any:
        computed.append(x)
        return np.empty(1 << 20, np.uint8)

    stream = opened(Dataset.range(100).map(large).window(2))
    stream.next()
    assert len(stream.next_chunk(50, 4 << 20)) in (1, 2)
    assert len(computed) <= 8


def test_a_large_chunk_is_returned_early() -> None:
    stream = opened(Dataset.from_tensor_slices(np.arange(100_000)).window(2, shift=1))
    assert len(stream.next_chunk(100_000, 1 << 30)) < 50_000
