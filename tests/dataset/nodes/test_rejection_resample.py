"""rejection_resample."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset, TensorSpec, UnknownSpec
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, opened, tape


def skewed(count: int) -> Dataset:
    """Of ten elements seven are of class 0, two of class 1, one of class 2."""
    return Dataset.range(count).map(lambda x: (x, (0, 0, 0, 1, 0, 0, 1, 0, 0, 2)[x % 10]))


def label(_: int, kind: int) -> int:
    return kind


@pytest.mark.parametrize("initial", [None, [0.7, 0.2, 0.1]])
@pytest.mark.parametrize("target", [[1 / 3] * 3, [0.1, 0.1, 0.8], [2, 2, 0], [0.7, 0.2, 0.1]])
def test_classes_come_as_often_as_they_shall(initial: Any, target: list[float]) -> None:
    dataset = skewed(40_000).rejection_resample(label, target, initial, seed=2)
    pairs = list(dataset)
    counts = Counter(kind for kind, _ in pairs)
    wanted = np.array(target) / sum(target)
    found = np.array([counts[kind] for kind in range(3)]) / counts.total()
    assert np.abs(found - wanted).max() < 0.03
    assert all(element[1] == kind for kind, element in pairs)
    numbers = [element[0] for _, element in pairs]
    assert sorted(set(numbers)) == numbers
    as_many_as_can_be_had = 40_000 / (wanted / np.array([0.7, 0.2, 0.1])).max()
    assert len(pairs) == pytest.approx(as_many_as_can_be_had, rel=0.1)


def test_a_target_that_is_the_initial_distribution_accepts_all() -> None:
    dataset = skewed(100).rejection_resample(label, [0.7, 0.2, 0.1], [0.7, 0.2, 0.1])
    assert [element for _, element in dataset] == list(skewed(100))


@pytest.mark.parametrize("initial", [None, [0.25] * 4])
def test_all_verbs_read_the_same_stream(initial: Any) -> None:
    def flaky(x: int) -> int:
        if x % 19 == 5:
            raise ValueError(f"no {x}")
        return x

    def kind(x: int) -> int:
        return 12 // (x % 23) % 5  # raises, and class 4 does not exist

    def make() -> Dataset:
        return (
            Dataset.range(150)
            .map(flaky)
            .rejection_resample(kind, [0.1, 0.2, 0.3, 0.4], initial, seed=8)
        )

    kinds = {position[1] for position in check_verbs(make) if position[0] == "raised"}
    assert kinds == {"ValueError", "ZeroDivisionError", "InvalidArgumentError"}


def test_draws_follow_seed_and_pass() -> None:
    def of(seed: int | None) -> Dataset:
        return skewed(300).rejection_resample(label, [1, 1, 1], seed=seed)

    assert tape(of(1)) == tape(of(1)) != tape(of(2))
    seeded = of(1)
    assert list(seeded) != list(seeded)
    assert list(seeded.iterator(epoch=4)) == list(seeded.iterator(epoch=4))
    assert tape(of(None), seed=1) != tape(of(None), seed=2)


def test_randomness_in_the_function_is_keyed_to_the_element() -> None:
    def kind(_: int) -> int:
        return int(stoker.random.generator().integers(2))

    check_verbs(lambda: Dataset.range(60).rejection_resample(kind, [0.5, 0.5], seed=1))


@pytest.mark.parametrize("returned", [3, -1, 1.5, "a", None])
def test_a_class_there_is_not_is_an_error_in_its_position(returned: Any) -> None:
    dataset = Dataset.range(2).rejection_resample(
        lambda x: 0 if x else returned, [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]
    )
    stream = opened(dataset)
    with pytest.raises(InvalidArgumentError, match=f"from 0 to 2, .* it returned {returned!r}"):
        stream.next()
    assert stream.next() == (0, 1)


def test_spec_and_cardinality() -> None:
    dataset = Dataset.range(10).rejection_resample(lambda x: x % 2, [0.5, 0.5])
    assert dataset.element_spec == (UnknownSpec(), TensorSpec((), "int64"))
    assert dataset.cardinality() == stoker.UNKNOWN_CARDINALITY
    assert Dataset.range(0).rejection_resample(lambda x: x, [1.0]).cardinality() == 0


@pytest.mark.parametrize(
    ("target", "initial", "words"),
    [
        ([], None, "`target_dist` must be numbers"),
        (0.5, None, "`target_dist` must be numbers"),
        ([0.0, 0.0], None, "`target_dist` must be numbers"),
        ([1.0, -1.0], None, "`target_dist` must be numbers"),
        ([0.5, 0.5], [1.0], "`initial_dist` must be 2 numbers"),
    ],
)
def test_wrong_distributions_are_named(target: Any, initial: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Dataset.range(3).rejection_resample(int, target, initial)


def test_a_function_must_be_one() -> None:
    with pytest.raises(InvalidArgumentError, match="`class_func` must be a function"):
        Dataset.range(3).rejection_resample(3, [1.0])  # type: ignore[arg-type]
