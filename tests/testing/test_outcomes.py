"""Outcomes are equal for equal elements, in all processes, and differ otherwise."""

import collections
import copy
import datetime as dt
import decimal
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.testing.outcomes import END, difference, outcome_of, outcome_of_error


@dataclass
class Pair:
    a: Any
    b: Any


class Plain:
    def __init__(self, x):
        self.x = x


class Slots:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


def cyclic(x):
    found: list[Any] = [x]
    plain = Plain(found)
    found.append(plain)
    return plain


def padded(a, b):
    array = np.empty(2, np.dtype([("a", "i1"), ("b", "i8")], align=True))
    array.view("u1")[:] = os.urandom(array.nbytes)[0]
    array["a"], array["b"] = a, b
    return array


DIFFERENT: list[tuple[Any, Any]] = [
    (1, 2),
    (1, 1.0),
    (1, True),
    (1, np.int64(1)),
    (np.int32(1), np.int64(1)),
    (0.0, -0.0),
    ("a", b"a"),
    ("", None),
    ((1, 2), [1, 2]),
    ((1, 2), (1, 2, 3)),
    ((), []),
    ({}, []),
    ({"a": 1}, {"b": 1}),
    ({"a": (1,)}, {"a": 1}),
    (Pair(1, 2), Pair(2, 1)),
    (Pair(1, 2), (1, 2)),
    (np.zeros(2), np.zeros(3)),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (np.zeros(2, "f4"), np.zeros(2, "f8")),
    (np.zeros(2, ">f4"), np.zeros(2, "<f4")),
    (np.arange(100), np.where(np.arange(100) == 99, 0, np.arange(100))),
    (np.array(["a", None], object), np.array(["a", "b"], object)),
    (np.array("2020-01-01", "M8[D]"), np.array("2020-01-01", "M8[s]")),
    (padded(1, 2), padded(1, 3)),
    ({1, 2}, {1, 3}),
    ({1}, frozenset({1})),
    (Plain(1), Plain(2)),
    (Slots(1), Slots(2)),
    (Plain([1, {"a": 2}]), Plain([1, {"a": 3}])),
    (cyclic(1), cyclic(2)),
    (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    (dt.date(2020, 1, 1), dt.date(2020, 1, 2)),
    (collections.deque([1]), collections.deque([2])),
    (int, float),
    (stoker.RaggedArray.from_rows([[1], [2, 3]]), stoker.RaggedArray.from_rows([[1, 2], [3]])),
]


@pytest.mark.parametrize("pair", DIFFERENT, ids=lambda pair: None)
def test_different_elements_differ(pair):
    one, other = pair
    texts = difference(outcome_of(one), outcome_of(other))
    assert texts is not None
    assert texts[0] != texts[1]
    assert difference(outcome_of({"x": [one]}), outcome_of({"x": [other]})) is not None


@pytest.mark.parametrize("pair", DIFFERENT, ids=lambda pair: None)
def test_copies_are_equal(pair):
    for value in pair:
        assert difference(outcome_of(value), outcome_of(copy.deepcopy(value))) is None


EQUAL: list[tuple[Any, Any]] = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (float("nan"), float("nan")),
    (np.zeros((3, 2)), np.zeros((2, 3)).T),
    (np.arange(6)[::2], np.array([0, 2, 4])),
    (padded(1, 2), padded(1, 2)),
    ((x for x in range(3)), (x for x in range(4))),  # they cannot be compared without an end
]


@pytest.mark.parametrize("pair", EQUAL, ids=lambda pair: None)
def test_equal_elements_are_equal(pair):
    assert difference(*map(outcome_of, pair)) is None


def test_texts_name_the_place_and_both_values():
    ours, theirs = ({"x": np.arange(9), "y": (1, y)} for y in (2, 3))
    assert difference(outcome_of(ours), outcome_of(theirs)) == ("['y'][1] is 2", "['y'][1] is 3")
    texts = difference(outcome_of(np.arange(9)), outcome_of(np.arange(9)[::-1]))
    assert texts == (
        "int64 array of shape (9,): 0, 1, 2, 3, 4, 5, ...",
        "int64 array of shape (9,): 8, 7, 6, 5, 4, 3, ...",
    )
    texts = difference(outcome_of(1), outcome_of(np.int64(1)))
    assert texts == ("1, a int", "1, a int64")


def test_errors_are_equal_but_for_addresses():
    errors = [ValueError(f"of {object()}") for _ in range(2)]
    assert difference(*map(outcome_of_error, errors)) is None
    for other in (outcome_of_error(TypeError("of")), END, outcome_of("ValueError")):
        assert difference(outcome_of_error(ValueError("of")), other) is not None


def test_digests_do_not_depend_on_the_process():
    program = (
        "import sys, tests.testing.test_outcomes as t\n"
        "from stoker.testing.outcomes import digest_of\n"
        "words = {'a', 'b', 'c', 'd'}\n"
        "values = [words, {w: 1 for w in words}, t.Plain(words), t.cyclic(words), int]\n"
        "print([digest_of(value).hex() for value in values])"
    )
    found = set()
    for seed in range(3):
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
