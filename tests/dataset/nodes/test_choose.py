"""sample_from_datasets and choose_from_datasets."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Dataset, Options, TensorSpec
from stoker.dataset.tree.structure import source_summary
from stoker.errors import InvalidArgumentError
from tests.dataset.verbs import check_verbs, failed, opened, tape

INT = TensorSpec((), "int64")


def flaky(start: int, stop: int) -> Dataset:
    def function(x: int) -> int:
        if x % 11 == 3:
            raise ValueError(f"no {x}")
        return x

    return Dataset.range(start, stop).map(function)


def endless(value: int) -> Dataset:
    return Dataset.from_tensors(value).repeat()


def choices(*indices: int) -> Dataset:
    return Dataset.from_tensor_slices(np.array(indices, np.int64))


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────
def test_sampling_reads_every_dataset_to_its_end_in_its_order() -> None:
    parts = [Dataset.range(50), Dataset.range(100, 130), Dataset.range(200, 201)]
    elements = list(Dataset.sample_from_datasets(parts, seed=3))
    for part in parts:
        assert [x for x in elements if x in set(part)] == list(part)
    assert elements != sorted(elements)
    assert len(elements) == 81


def test_weights_are_kept() -> None:
    dataset = Dataset.sample_from_datasets([endless(i) for i in range(3)], [1, 2, 5.0], seed=1)
    counts = Counter(dataset.take(16_000))
    assert [round(counts[i] / 2000) for i in range(3)] == [1, 2, 5]


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("weights", [None, [1.0, 5.0, 1.0]])
def test_all_verbs_read_the_same_sample(stop: bool, weights: Any) -> None:
    def make() -> Dataset:
        parts = [flaky(0, 40), flaky(100, 107).filter(lambda x: x % 2), flaky(200, 260)]
        return Dataset.sample_from_datasets(parts, weights, 5, stop)

    assert len(check_verbs(make)) == 104 or stop


def test_stopping_ends_where_an_ended_dataset_is_drawn() -> None:
    parts = [Dataset.range(4), endless(9)]
    elements = tape(Dataset.sample_from_datasets(parts, seed=2, stop_on_empty_dataset=True))
    assert [x for x in elements if x < 9] == [0, 1, 2, 3]
    going_on = tape(Dataset.sample_from_datasets(parts, seed=2).take(len(elements) + 5))
    assert going_on[: len(elements)] == elements
    assert going_on[len(elements) :] == [9] * 5


def test_the_remaining_dataset_is_read_at_any_positive_weight() -> None:
    parts = [Dataset.range(5), Dataset.range(100, 105)]
    dataset = Dataset.sample_from_datasets(parts, [1.0, 1e-300], seed=1)
    assert list(dataset) == [*range(5), *range(100, 105)]
    check_verbs(lambda: Dataset.sample_from_datasets(parts, [1.0, 1e-300], seed=1))


def test_epochs_draw_alike_unless_rerandomized() -> None:
    parts = [Dataset.range(20), Dataset.range(100, 120)]
    for given in (7, None):
        same = Dataset.sample_from_datasets(parts, seed=given)
        assert list(same) == list(same)
        anew = Dataset.sample_from_datasets(parts, seed=given, rerandomize_each_iteration=True)
        assert list(anew) != list(anew)
        assert list(anew.iterator(epoch=3)) == list(anew.iterator(epoch=3))
    orders = [list(Dataset.sample_from_datasets(parts, seed=seed)) for seed in (1, 2, 1)]
    assert orders[0] == orders[2] != orders[1]


def test_a_dataset_of_weight_0_is_never_read() -> None:
    parts = [Dataset.range(3), Dataset.from_generator(lambda: [1 // 0])]
    assert list(Dataset.sample_from_datasets(parts, [1.0, 0.0])) == [0, 1, 2]
    assert list(Dataset.sample_from_datasets(parts, [0.5, 0.0], None, True)) == [0, 1, 2]


def test_a_single_dataset_is_itself() -> None:
    assert list(Dataset.sample_from_datasets([Dataset.range(3)])) == [0, 1, 2]


def test_advance_counts_draws_and_calls_no_function() -> None:
    called: list[int] = []
    parts = [Dataset.range(10**9).map(called.append) for _ in range(2)]
    stream = opened(Dataset.sample_from_datasets(parts, seed=1))
    assert stream.advance(3_000_000) == 3_000_000
    assert called == []
    assert stream.next() is None
    assert abs(called[0] - 1_500_000) < 5000


def test_take_computes_no_more_than_it_gives() -> None:
    called: list[int] = []
    parts = [Dataset.range(100).map(called.append) for _ in range(2)]
    stream = opened(Dataset.sample_from_datasets(parts, seed=1).take(10))
    while stream.next_chunk(50, 1 << 20):
        pass
    assert len(called) == 10


def test_a_dataset_of_weights_also_ends_the_sample() -> None:
    parts = [Dataset.range(100), Dataset.range(100, 200)]
    weights = Dataset.from_tensor_slices([[1.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
    assert list(Dataset.sample_from_datasets(parts, weights)) == [0, 100, 101]
    skewed = Dataset.from_tensors([[0.2, 0.8]]).repeat(1000)
    found = Counter(
        x >= 100 for x in Dataset.sample_from_datasets([endless(0), endless(100)], skewed, seed=1)
    )
    assert found.total() == 1000
    assert abs(found[True] - 800) < 60


def test_all_verbs_read_the_same_sample_by_a_dataset_of_weights() -> None:
    def weights_of(x: int) -> list[float]:
        return [x % 3, 5 // (x % 13), 1.0]

    def make() -> Dataset:
        weights = Dataset.range(80).map(weights_of)
        return Dataset.sample_from_datasets(
            [flaky(0, 20), flaky(100, 110), flaky(200, 260)], weights, 4
        )

    expected = check_verbs(make)
    assert failed(ZeroDivisionError("integer division or modulo by zero")) in expected


def test_invalid_weights_of_a_dataset_fail_at_their_position() -> None:
    weights = Dataset.from_generator(lambda: [[1, 0], [0, 0], [1], [1, -1], "x", [0, 1]])
    dataset = Dataset.sample_from_datasets([endless(0), endless(1)], weights)
    found = tape(dataset)
    assert [found[0], found[5]] == [0, 1]
    assert [kind for _, kind, _ in found[1:5]] == [
        *["InvalidArgumentError"] * 3,
        "InvalidTypeError",
    ]


# ── choosing ─────────────────────────────────────────────────────────────────────────────────────
A, B = Dataset.range(2), Dataset.range(100, 105)


# The results of tf.data 2.21.
@pytest.mark.parametrize(
    ("indices", "stop", "expected"),
    [
        (Dataset.range(2).repeat(), False, [0, 100, 1, 101, 102, 103, 104]),
        (Dataset.range(2).repeat(), True, [0, 100, 1, 101]),
        (choices(0, 0, 0, 0, 1), False, [0, 1, 100]),
        (choices(0, 0, 0, 0, 1), True, [0, 1]),
        (choices(), True, []),
        (choices(1, 0, 1), True, [100, 0, 101]),
    ],
)
def test_choices_are_followed(indices: Dataset, stop: bool, expected: list[int]) -> None:
    dataset = Dataset.choose_from_datasets([A, B], indices, stop_on_empty_dataset=stop)
    assert list(dataset) == expected


@pytest.mark.parametrize("stop", [False, True])
def test_all_verbs_read_the_same_choice(stop: bool) -> None:
    def make() -> Dataset:
        indices = Dataset.range(100).map(lambda x: 3 // (x % 7) % 4)
        parts = [flaky(0, 40), flaky(100, 112), flaky(200, 230)]
        return Dataset.choose_from_datasets(parts, indices, stop)

    check_verbs(make)


def test_a_choice_that_is_none_is_an_error_in_its_position() -> None:
    indices = Dataset.from_generator(lambda: [0, 2, -1, "x", None, 1.0, np.int32(1)])
    found = tape(Dataset.choose_from_datasets([A, B], indices))
    assert [found[0], found[6]] == [0, 100]
    assert [kind for _, kind, _ in found[1:6]] == ["InvalidArgumentError"] * 5
    assert "an int from 0 to 1; got 2" in found[1][2]


def test_choices_are_not_split_but_the_datasets_are() -> None:
    dataset = Dataset.choose_from_datasets([A, B.map(str)], Dataset.range(2).repeat(), False)
    assert [source.kind for source in source_summary(dataset.node)] == ["range", "range"]
    by_generator = Dataset.sample_from_datasets([A, B], Dataset.from_generator(list))
    assert [source.kind for source in source_summary(by_generator.node)] == ["range", "range"]


# ── both ─────────────────────────────────────────────────────────────────────────────────────────
FINITE, ENDLESS, UNKNOWN = B, B.repeat(), B.filter(lambda _: True)
INFINITE = stoker.INFINITE_CARDINALITY


@pytest.mark.parametrize(
    ("parts", "stop", "expected"),
    [
        ([FINITE, FINITE], False, 10),
        ([FINITE, ENDLESS], False, INFINITE),
        ([FINITE, UNKNOWN], False, -2),
        ([UNKNOWN, ENDLESS], False, INFINITE),
        ([FINITE, FINITE], True, -2),
        ([FINITE, ENDLESS], True, -2),
        ([ENDLESS, ENDLESS], True, INFINITE),
        ([FINITE], True, 5),
    ],
)
def test_cardinality_of_a_sample(parts: list[Dataset], stop: bool, expected: int) -> None:
    sample = Dataset.sample_from_datasets(parts, stop_on_empty_dataset=stop)
    assert sample.cardinality() == expected


@pytest.mark.parametrize(
    ("parts", "indices", "expected"),
    [
        ([ENDLESS, ENDLESS], choices(0, 1, 1), 3),
        ([ENDLESS, ENDLESS], Dataset.range(2).repeat(), INFINITE),
        ([ENDLESS, FINITE], Dataset.range(2).repeat(), -2),
        ([ENDLESS, FINITE], choices(), 0),
    ],
)
def test_cardinality_of_a_choice(parts: list[Dataset], indices: Dataset, expected: int) -> None:
    assert Dataset.choose_from_datasets(parts, indices).cardinality() == expected


def test_spec_covers_all_datasets_and_options_are_merged() -> None:
    rows = [Dataset.from_tensor_slices(np.zeros((1, n))) for n in (3, 3, 4)]
    spec = TensorSpec((None,), "float64")
    assert Dataset.sample_from_datasets(rows).element_spec == spec
    assert Dataset.choose_from_datasets(rows[:2], A).element_spec == TensorSpec((3,), "float64")
    seeded = Dataset.sample_from_datasets([A, B.with_options(Options(seed=3))])
    assert seeded.options().seed == 3


untyped: Any = Dataset


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: untyped.sample_from_datasets([]), "must be a list of datasets, not empty"),
        (lambda: untyped.sample_from_datasets(A), "must be a list of datasets"),
        (lambda: untyped.sample_from_datasets([A, 3]), r"`datasets\[1\]` must be a Dataset; got 3"),
        (
            lambda: untyped.sample_from_datasets([A, Dataset.from_tensors("a")]),
            "elements of one structure",
        ),
        (lambda: untyped.sample_from_datasets([A, B], [1.0]), "2 numbers of 0 or more"),
        (lambda: untyped.sample_from_datasets([A, B], [1.0, -1.0]), "2 numbers of 0 or more"),
        (lambda: untyped.sample_from_datasets([A, B], [1.0, float("nan")]), "2 numbers of 0 or"),
        (lambda: untyped.sample_from_datasets([A, B], [0.0, 0.0]), "must be more than 0"),
        (lambda: untyped.sample_from_datasets([A, B], seed="x"), "`seed` must be an int"),
        (lambda: untyped.choose_from_datasets([A, B], [0, 1]), "`choice_dataset` must be a Data"),
        (lambda: untyped.choose_from_datasets([A, B], A.batch(2)), "must be ints, indices"),
        (
            lambda: untyped.choose_from_datasets([A, B], Dataset.from_tensors(1.5)),
            "must be ints, indices",
        ),
    ],
)
def test_wrong_arguments_are_named(build: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        build()
