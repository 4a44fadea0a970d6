"""Datasets of an endless input: which of them are known to be endless."""

from collections.abc import Callable
from typing import Any

import pytest

import stoker
from stoker import Dataset

Verb = Callable[[Any], Any]

UNBOUNDED: list[tuple[str, Verb]] = [
    ("interleave", lambda d: d.interleave(Dataset.range)),
    ("interleave on threads", lambda d: d.interleave(Dataset.range, num_parallel_calls=2)),
    ("group_by_window", lambda d: d.group_by_window(int, lambda key, group: group, 2)),
    ("buckets", lambda d: d.bucket_by_sequence_length(int, [3], [2, 2])),
    ("rejection_resample", lambda d: d.rejection_resample(int, [0.5, 0.5])),
    ("ignore_errors", lambda d: d.ignore_errors()),
    ("unbatch", lambda d: d.batch(2).unbatch()),
    ("rebatch", lambda d: d.batch(2).rebatch(3)),
    ("window", lambda d: d.window(2)),
]


@pytest.mark.parametrize(
    "verb", [verb for _, verb in UNBOUNDED], ids=[name for name, _ in UNBOUNDED]
)
def test_an_endless_input_makes_an_endless_dataset(verb: Verb) -> None:
    assert verb(Dataset.range(5).repeat()).cardinality() == stoker.INFINITE_CARDINALITY
    assert verb(Dataset.range(0)).cardinality() == 0


@pytest.mark.parametrize(
    "verb", [verb for name, verb in UNBOUNDED[:6]], ids=[name for name, _ in UNBOUNDED[:6]]
)
def test_a_finite_input_may_make_any_number(verb: Verb) -> None:
    assert verb(Dataset.range(5)).cardinality() == stoker.UNKNOWN_CARDINALITY


@pytest.mark.parametrize(
    "verb",
    [
        lambda d: d.filter(bool),
        lambda d: d.take_while(bool),
        lambda d: d.unique(),
        lambda d: d.flat_map(Dataset.range),
    ],
)
def test_what_may_drop_all_that_follows_is_unknown(verb: Verb) -> None:
    assert verb(Dataset.range(5).repeat()).cardinality() == stoker.UNKNOWN_CARDINALITY
