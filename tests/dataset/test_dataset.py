"""The fluent API."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset, Options, TensorSpec, UnknownSpec
from stoker.errors import InvalidArgumentError

# `Any`, because the type checker would reject the wrong arguments.
Source: Any = Dataset


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: Source.range(), "got 0 arguments"),
        (lambda d: Source.range(1, 2, 0), "`step` must not be 0"),
        (lambda d: Source.range(1.5), r"`stop` must be an int of 64 bits; got 1\.5"),
        (lambda d: Source.range(2**63), "`stop` must be an int of 64 bits"),
        (lambda d: Source.range(-(2**63), 2**62), "more elements than"),
        (lambda d: d.map(3), "`map_func` must be a function; got a int: 3"),
        (
            lambda d: d.map(abs, 0),
            "`num_parallel_calls` must be an int of at least 1.*AUTOTUNE; got 0",
        ),
        (lambda d: d.map(abs, -2), "`num_parallel_calls` must be an int of at least 1"),
        (lambda d: d.map(abs, element_spec=3), "`element_spec` must be a TensorSpec"),
        (lambda d: d.filter(None), "`predicate` must be a function"),
        (lambda d: d.flat_map(d), "`map_func` must be a function"),
        (lambda d: d.batch(0), "`batch_size` must be an int of at least 1; got 0"),
        (lambda d: d.batch(True), "`batch_size` must be an int of at least 1; got True"),
        (lambda d: d.batch(2.5), r"`batch_size` must be an int of at least 1; got 2\.5"),
        (lambda d: d.batch(2, 1), "`drop_remainder` must be True or False; got 1"),
        (lambda d: d.shuffle(0), "`buffer_size` must be an int of at least 1"),
        (lambda d: d.shuffle(-1), "`buffer_size` must be an int of at least 1, or stoker.UNK"),
        (lambda d: d.shuffle(-3), "`buffer_size` must be an int of at least 1, or stoker.UNK"),
        (lambda d: d.repeat().shuffle(-2), "buffers all elements, but the dataset is infinite"),
        (lambda d: d.shuffle(3, 1.5), "`seed` must be an int"),
        (lambda d: d.repeat(1.5), "`count` must be an int of 0 or more, or negative for endless"),
        (
            lambda d: d.take("3"),
            "`count` must be an int of 0 or more, or negative for all; got '3'",
        ),
        (lambda d: d.skip(None), "`count` must be an int of 0 or more"),
        (lambda d: d.prefetch(-2), "`buffer_size` must be an int of 0 or more, stoker.AUTOTUNE or"),
        (lambda d: d.apply(abs), "function|bad operand"),
        (lambda d: d.apply(lambda _: 5), "must return a Dataset; it returned 5"),
        (lambda d: d.iterator(epoch=-1), "`epoch` must be an int of 0 or more"),
        (lambda d: Source([1, 2]), r"class methods of Dataset.*from_tensor_slices.*got \[1, 2\]"),
        (lambda d: Source.list_files([]), "`file_pattern` must be one or more non-empty paths"),
        (lambda d: Source.list_files(5), "`file_pattern` must be a path"),
        (lambda d: Source.list_files("a", shuffle=2), "`shuffle` must be True or False"),
        (lambda d: Source.from_generator([1]), "`generator` must be a function"),
        (lambda d: Source.from_generator(list, args=3), "`args` must be a tuple"),
    ],
)
def test_invalid_argument_is_named_with_its_value(make: Callable[..., Any], words: str) -> None:
    with pytest.raises((InvalidArgumentError, TypeError), match=words):
        make(Dataset.range(3))


def test_datasets_are_immutable() -> None:
    base: Any = Dataset.range(4)
    doubled = base.map(lambda x: 2 * x)
    assert list(base) == [0, 1, 2, 3]
    assert list(doubled.take(2)) == [0, 2]
    with pytest.raises(AttributeError):
        base.node = doubled.node


def test_numpy_integers_are_accepted() -> None:
    assert list(Source.range(np.int64(5)).take(np.int32(2))) == [0, 1]


def test_len_bool_and_repr() -> None:
    assert len(Dataset.range(10).batch(4)) == 3
    with pytest.raises(TypeError, match="infinite"):
        len(Dataset.range(3).repeat())
    with pytest.raises(TypeError, match="unknown until it is read"):
        len(Dataset.range(3).filter(bool))
    assert bool(Dataset.range(0)) is True
    assert repr(Dataset.range(3).take(2)) == (
        "<Dataset range.take element_spec=TensorSpec(shape=(), dtype=int64)>"
    )


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Dataset.range(7).repeat(3).skip(1).take(5), 5),
        (Dataset.range(7).repeat(3).skip(1), 20),
        (Dataset.range(7).take(-1), 7),
        (Dataset.range(7).skip(-1), 0),
        (Dataset.range(7).skip(9), 0),
        (Dataset.range(7).repeat(), stoker.INFINITE_CARDINALITY),
        (Dataset.range(7).repeat().take(9), 9),
        (Dataset.range(7).repeat().skip(9), stoker.INFINITE_CARDINALITY),
        (Dataset.range(0).repeat(), 0),
        (Dataset.range(7).repeat(0), 0),
        (Dataset.range(7).filter(bool), stoker.UNKNOWN_CARDINALITY),
        (Dataset.range(7).filter(bool).take(3), stoker.UNKNOWN_CARDINALITY),
        (Dataset.range(7).filter(bool).take(0), 0),
        (Dataset.range(0).filter(bool), 0),
        (Dataset.range(7).flat_map(Dataset.range), stoker.UNKNOWN_CARDINALITY),
        (Dataset.range(0).flat_map(Dataset.range), 0),
        (Dataset.from_generator(list), stoker.UNKNOWN_CARDINALITY),
        (Dataset.list_files("*"), stoker.UNKNOWN_CARDINALITY),
        (Dataset.from_tensors([1, 2]), 1),
        (Dataset.from_tensor_slices([1, 2]), 2),
    ],
)
def test_cardinality(dataset: Dataset, expected: int) -> None:
    assert dataset.cardinality() == expected


def test_element_spec_is_known_declared_or_unknown() -> None:
    scalar = TensorSpec((), np.int64)
    assert Dataset.range(3).take(1).skip(1).repeat().filter(bool).element_spec == scalar
    assert Dataset.range(3).map(abs).element_spec == UnknownSpec()
    declared = {"x": TensorSpec((None,), "f4")}
    assert Dataset.range(3).map(abs, element_spec=declared).element_spec == declared
    assert Dataset.range(3).flat_map(Dataset.range).element_spec == UnknownSpec()
    assert Dataset.from_generator(list, output_signature=scalar).element_spec == scalar
    slices = Dataset.from_tensor_slices({"x": np.zeros((4, 2)), "y": ["a"] * 4})
    assert slices.element_spec == {"x": TensorSpec((2,), "f8"), "y": TensorSpec((), object)}


def test_each_iter_is_the_next_epoch() -> None:
    dataset = Dataset.range(50).shuffle(50, seed=3)
    first, second = list(dataset), list(dataset)
    assert first != second
    again = Dataset.range(50).shuffle(50, seed=3)
    assert [list(again), list(again)] == [first, second]
    assert list(dataset.iterator(epoch=1)) == second


def test_explicit_epoch_does_not_advance_the_epoch_count() -> None:
    dataset, twin = (Dataset.range(50).shuffle(50, seed=3) for _ in range(2))
    list(dataset.iterator(epoch=9))
    assert list(dataset) == list(twin)


def test_options_seed_makes_unseeded_datasets_agree() -> None:
    def shuffled() -> Dataset:
        return Dataset.range(50).shuffle(50)

    assert list(shuffled()) != list(shuffled())
    seeded = [list(shuffled().with_options(Options(seed=1))) for _ in range(2)]
    assert seeded[0] == seeded[1]


def test_take_and_skip_partition_a_dataset_shuffled_once() -> None:
    shuffled = Dataset.range(50).shuffle(50, reshuffle_each_iteration=False)
    head, tail = shuffled.take(20), shuffled.skip(20)
    assert sorted([*head, *tail]) == list(range(50))


def test_pickled_copy_reads_the_same_epochs() -> None:
    dataset = Dataset.range(20).shuffle(20).map(lambda x: x + 1)
    next(iter(dataset))
    for twin in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):
        assert list(twin) == list(dataset.iterator(epoch=1))
        assert twin.options() == dataset.options()


def test_captured_dataset_is_pickled_with_its_function() -> None:
    inner = Dataset.range(2).map(lambda x: x + 10)
    dataset = Dataset.range(2).flat_map(lambda x: inner.take(x + 1))
    assert list(pickle.loads(pickle.dumps(dataset))) == [10, 10, 11]


def test_as_numpy_iterator_is_an_iterator() -> None:
    assert list(Dataset.range(3).as_numpy_iterator()) == [0, 1, 2]
