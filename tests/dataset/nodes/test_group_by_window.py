"""group_by_window."""

import tracemalloc
from time import thread_time
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.tree.node import UNKNOWN_CARDINALITY
from stoker.elements.spec import TensorSpec, UnknownSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened, positions, tape


def batched(count: int) -> Any:
    return lambda key, group: group.batch(count)


# The results of tf.data 2.21.
@pytest.mark.parametrize(
    ("key", "sizes", "batch", "expected"),
    [
        (
            lambda x: (x * 7) % 5 % 3,
            {"window_size": 3},
            3,
            [[0, 4, 5], [2, 3, 7], [1, 6, 11], [8, 12, 13], [9, 10, 14], [15, 19], [17, 18], [16]],
        ),
        (
            lambda x: 2 - (x % 5),
            {"window_size": 3},
            4,
            [
                *([0, 5, 10], [1, 6, 11], [2, 7, 12], [3, 8, 13], [4, 9, 14]),
                *([19], [18], [17], [16], [15]),
            ],
        ),
        (
            lambda x: x % 3,
            {"window_size_func": lambda key: key + 2},
            10,
            [
                *([0, 3], [1, 4, 7], [6, 9], [2, 5, 8, 11], [12, 15], [10, 13, 16]),
                *([18], [19], [14, 17]),
            ],
        ),
    ],
)
def test_groups_come_in_the_order_of_tf_data(
    key: Any, sizes: dict[str, Any], batch: int, expected: list[Any]
) -> None:
    dataset = Dataset.range(20).group_by_window(key, batched(batch), **sizes)
    assert [array.tolist() for array in dataset] == expected


def test_tuples_are_unpacked_for_the_key_only() -> None:
    pairs = Dataset.range(4).map(lambda x: (x, -x))
    dataset = pairs.group_by_window(lambda a, b: (a + b) % 2, lambda key, group: group, 2)
    assert list(dataset) == [(0, 0), (1, -1), (2, -2), (3, -3)]


def key_of(x: int) -> int:
    if x % 11 == 5:
        raise ValueError(f"no key for {x}")
    return x % 3


def group_of(key: int, group: Dataset) -> Dataset:
    elements = list(group)
    if sum(elements) % 5 == 1:
        raise LookupError(f"no dataset for {elements}")
    return group.map(lambda x: 60 // (x % 4)).repeat(key)


def test_all_verbs_read_the_same_stream() -> None:
    def make() -> Dataset:
        broken = Dataset.range(50).map(lambda x: x + 0 * (1 // ((x + 1) % 13)))
        return broken.group_by_window(key_of, group_of, window_size_func=lambda key: key + 2)

    found = check_verbs(make, mixes=30)
    names = [position[1] for position in found if isinstance(position, tuple)]
    assert {"ValueError", "LookupError", "ZeroDivisionError"} == set(names)
    assert len(found) - len(names) > 15


@pytest.mark.parametrize("function", ["key_func", "reduce_func", "window_size_func"])
def test_errors_name_their_place(function: str) -> None:
    def fail(*_: Any) -> Any:
        raise LookupError("nothing there")

    functions: dict[str, Any] = {
        "key_func": lambda x: 0,
        "reduce_func": lambda key, group: group,
        "window_size_func": lambda key: 1,
    }
    dataset = Dataset.range(1).group_by_window(**{**functions, function: fail})
    iterator = iter(dataset)
    with pytest.raises(LookupError) as caught:
        next(iterator)
    argument = "(0, <Dataset>)" if function == "reduce_func" else "0"
    assert failure_origin(caught.value) == ("group_by_window", dataset.node.site, 0, argument)
    assert list(iterator) == []


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"key_func": lambda x: "a"}, "`key_func` must return an int; it returned a str: 'a'"),
        (
            {"reduce_func": lambda key, group: 3},
            "function of group_by_window must return a Dataset",
        ),
        ({"window_size_func": lambda key: 0}, "must be at least 1; got 0 for key 1"),
    ],
)
def test_return_values_of_the_functions_are_checked(
    functions: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {
        "key_func": lambda x: 1,
        "reduce_func": lambda key, group: group,
        "window_size_func": lambda key: 1,
        **functions,
    }
    with pytest.raises(InvalidArgumentError, match=message):
        next(iter(Dataset.range(1).group_by_window(**given)))


def test_keys_may_be_numpys() -> None:
    keys = Dataset.from_tensor_slices([1.5, -2.0, 3.0])
    dataset = keys.group_by_window(lambda x: x > 0, batched(5), 5)
    assert [array.tolist() for array in dataset] == [[-2.0], [1.5, 3.0]]


def test_the_size_is_asked_once_for_each_key() -> None:
    asked: list[int] = []

    def size(key: int) -> int:
        asked.append(key)
        return 2

    list(Dataset.range(20).group_by_window(lambda x: x % 2, batched(2), window_size_func=size))
    assert asked == [0, 1]


def test_each_epoch_and_each_group_draws_for_itself() -> None:
    dataset = Dataset.range(40).group_by_window(
        lambda x: x // 20, lambda key, group: group.map(lambda x: x % 20).shuffle(20), 20
    )
    elements = tape(dataset)
    assert sorted(elements[:20]) == sorted(elements[20:])
    assert elements[:20] != elements[20:]
    assert tape(dataset) == elements
    assert tape(dataset, epoch=(3,)) != elements


def test_functions_draw_by_seed_and_position() -> None:
    def key(x: int) -> int:
        return int(stoker.random.generator().integers(3))

    def make(key: int, group: Dataset) -> Dataset:
        return group.take(int(stoker.random.generator().integers(3)))

    found = check_verbs(lambda: Dataset.range(50).group_by_window(key, make, 3))
    assert found


def test_groups_keep_the_spec_and_know_their_cardinality() -> None:
    specs: list[Any] = []

    def note(key: int, group: Dataset) -> Dataset:
        specs.append((group.element_spec, group.cardinality()))
        return group

    list(Dataset.range(3).group_by_window(lambda x: 0, note, 2))
    assert specs == [(TensorSpec((), np.int64), 2), (TensorSpec((), np.int64), 1)]


def test_advance_skips_the_datasets_of_groups_without_reading() -> None:
    called: list[int] = []
    dataset = Dataset.range(6).group_by_window(
        lambda x: x % 2, lambda key, group: group.map(called.append).repeat(10**9), 3
    )
    stream = opened(dataset)
    assert stream.advance(4 * 10**9) == 4 * 10**9
    assert called == []
    assert positions(stream, 1) == [None]
    assert called == [3]


def test_spec_and_cardinality() -> None:
    dataset = Dataset.range(3).group_by_window(lambda x: 0, batched(2), 2)
    assert dataset.element_spec == UnknownSpec()
    assert dataset.cardinality() == UNKNOWN_CARDINALITY
    assert Dataset.range(0).group_by_window(lambda x: 0, batched(2), 2).cardinality() == 0
    spec = TensorSpec((None,), np.int64)
    declared = Dataset.range(3).group_by_window(lambda x: 0, batched(2), 2, element_spec=spec)
    assert declared.element_spec == spec


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"key_func": 1}, "key_func"),
        ({"reduce_func": None}, "reduce_func"),
        ({"window_size": 0}, "window_size"),
        ({"window_size": None}, "Either the `window_size` argument or the `window_size_func`"),
        ({"window_size_func": int}, "and not both"),
        ({"window_size": None, "window_size_func": 3}, "window_size_func"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"key_func": int, "reduce_func": batched(1), "window_size": 2}
    with pytest.raises(InvalidArgumentError, match=message):
        Dataset.range(3).group_by_window(**{**given, **wrong})


def test_after_close_there_is_nothing() -> None:
    stream = opened(Dataset.range(9).group_by_window(lambda x: 0, batched(2), 2))
    stream.next()
    stream.close()
    assert stream.next_chunk(5, 100) == []


def test_groups_of_one_element_cost_as_little_as_large_groups() -> None:
    """Looking through all keys for each group would take half a minute."""
    dataset = Dataset.range(50_000).group_by_window(lambda x: -x, lambda _, group: group, 2)
    stream = opened(dataset)
    assert stream.advance(1) == 1
    begun = thread_time()
    assert stream.advance(50_000) == 49_999
    assert thread_time() - begun < 8


def test_keys_that_are_done_with_are_forgotten() -> None:
    """A dataset without end may have keys without end."""
    dataset = Dataset.counter().group_by_window(lambda x: x, lambda _, group: group, 1)
    stream = opened(dataset)
    tracemalloc.start()
    try:
        assert [stream.next() for _ in range(1000)][-1] == 999
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(4000):
            stream.next()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000
