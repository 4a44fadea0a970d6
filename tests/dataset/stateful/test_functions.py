"""Resuming an epoch warns once of functions with a state, and never of others."""

import functools
import io
import itertools
import random
import warnings
from collections import defaultdict
from random import random as draw
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.dataset.stateful.functions import state_of

# The variables that the functions below use.
POSITION = 0
CALLS = 0
MODEL: Any = None
GENERATOR = np.random.default_rng(1)
CALLED: list[int] = []
TABLE = {"a": [1, 2, 3]}
NESTED = {"ids": [itertools.count()]}


def counts_globally(x):
    global POSITION
    POSITION = POSITION + 1
    return x + POSITION


def counts_its_calls(x):
    global CALLS
    CALLS += 1
    return x


def loads_lazily(x):
    global MODEL
    if MODEL is None:
        MODEL = {"weights": [x]}
    return MODEL["weights"][0]


def draws_globally(x):
    return x + GENERATOR.random()


def calls_another(x):
    return draws_globally(x)


class Numbered:
    def __init__(self):
        self.running = 0
        self.most = 0
        self.position = 0
        self.hits = 0
        self.cached: dict[int, int] = {}
        self.ids = itertools.count()
        self.rng = random.Random(1)

    def __call__(self, x):
        self.position += 1
        return x, self.position

    def step(self):
        self.position = self.position + 1
        return self.position

    def by_step(self, x):
        return x, self.step()

    def by_id(self, x):
        return x, next(self.ids)

    def augmented(self, x):
        return x + self.rng.random()

    def memoized(self, x):
        self.hits += 1
        if x not in self.cached:
            self.cached[x] = x * x
        return self.cached[x]

    def measured(self, x):
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running % 100 == 0:
            CALLED.append(self.running)
        self.running -= 1
        return x

    def plain(self, x):
        return x + 1


def closures() -> dict[str, tuple[Any, str]]:
    count = 0

    def counts(x):
        nonlocal count
        count += 1
        return x + count

    lines = iter(["a", "b"])
    generated = (n for n in range(3))
    file = io.StringIO("a\nb\n")
    numbers = itertools.count()
    generator = np.random.default_rng(0)
    elements = iter(stoker.Dataset.range(3))
    return {
        "nonlocal": (counts, "`count`, a counter"),
        "global": (counts_globally, "`POSITION`, a counter"),
        "attribute": (Numbered(), "`self.position`, a counter"),
        "attribute of another method": (Numbered().by_step, "`self.position`, a counter"),
        "iterator": (lambda x: (x, next(lines)), "`lines` (list_iterator)"),
        "open generator": (lambda x: (x, next(generated)), "`generated` (generator)"),
        "itertools.count": (lambda x: (x, next(numbers)), "`numbers` (itertools.count)"),
        "bound next": (lambda x, n=numbers.__next__: (x, n()), "`default 0` (itertools.count)"),
        "partial": (functools.partial(next, numbers), "`argument 0` (itertools.count)"),
        "open file": (lambda x: (x, file.readline()), "`file` (_io.StringIO)"),
        "NumPy generator": (
            lambda x: x + generator.random(),
            "`generator` (numpy.random._generator.Generator)",
        ),
        "another function's global": (
            calls_another,
            "`GENERATOR` (numpy.random._generator.Generator)",
        ),
        "method of Random": (lambda x: x + draw(), "`draw` (random.Random)"),
        "attribute with an iterator": (Numbered().by_id, "`ids` (itertools.count)"),
        "attribute with a generator": (Numbered().augmented, "`rng` (random.Random)"),
        "container": (lambda x: next(NESTED["ids"][0]), "`[0]` (itertools.count)"),
        "arguments": ((lines, 1), "`[0]` (list_iterator)"),
        "stoker's iterator": (
            lambda x: (x, next(elements)),
            "`elements` (stoker.dataset.iterator.Iterator)",
        ),
    }


def stateless() -> dict[str, Any]:
    lookup = {1: "a"}
    array = np.arange(10)
    file = io.BytesIO(bytes(100))
    seen: set[int] = set()
    totals: defaultdict[int, int] = defaultdict(int)
    model = stoker.per_worker(itertools.count)
    repeated = itertools.repeat(1)
    log = []

    def tallies(x):
        totals[x] += 1
        log.append(x)
        seen.add(x)
        return x

    def local_counter(x):
        n = 0
        for _ in range(3):
            n += x
        return n

    def seeks(x):
        file.seek(x)
        return file.read(1)

    def updates_the_element(point):
        point.x += 1
        return point.x

    @functools.lru_cache
    def cached(x):
        return x

    return {
        "builtin": abs,
        "class": str,
        "NumPy function": np.sqrt,
        "table": lambda x: lookup[x] + str(array[x]) + str(TABLE["a"]),
        "statistics of calls": counts_its_calls,
        "lazy model": loads_lazily,
        "tallies": tallies,
        "local counter": local_counter,
        "random access": seeks,
        "element's attribute": updates_the_element,
        "cache": cached,
        "memory of a method": Numbered().memoized,
        "statistics of concurrency": Numbered().measured,
        "unused state of an object": Numbered().plain,
        "per_worker": lambda x: (x, model.get()),
        "generator of the element": lambda x: x + stoker.random.generator().random(),
        "new generator": lambda x: np.random.default_rng(x).random(),
        "constant": lambda x: (x, next(repeated)),
        "generator function": lambda: (n for n in range(3)),
        "itertools": lambda x: list(itertools.chain([x], itertools.islice(itertools.count(), x))),
    }


@pytest.mark.parametrize("name", closures())
def test_a_state_is_named(name):
    function, expected = closures()[name]
    assert state_of(function) == expected


@pytest.mark.parametrize("name", stateless())
def test_functions_without_a_state_are_not_reported(name):
    assert state_of(stateless()[name]) == ""


def _resumed(dataset: stoker.Dataset, position: int = 2) -> Any:
    iterator = iter(dataset)
    for _ in range(position):
        next(iterator)
    return lambda: dataset.iterator(state=iterator.state_dict())


def test_resuming_warns_once_at_the_users_line():
    numbers = itertools.count()
    resume = _resumed(stoker.Dataset.range(9).map(lambda x: (x, next(numbers))).prefetch(2))
    with pytest.warns(
        UserWarning, match=r"`map` \(.*test_functions.py:\d+\) has a state"
    ) as caught:
        resume()
    [warning] = caught
    assert warning.filename == __file__
    assert "`numbers` (itertools.count)" in str(warning.message)
    assert "stoker.random.generator()" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resume()


def test_functions_of_every_node_are_examined():
    lines, more, numbers = iter("abcdef"), iter("abcdef"), itertools.count()
    for dataset in (
        stoker.Dataset.from_generator(lambda: lines),
        stoker.Dataset.from_generator(list, args=(more,)),
        stoker.Dataset.range(9).filter(lambda _: next(numbers) >= 0),
        stoker.Dataset.range(9).flat_map(lambda _: stoker.Dataset.range(next(numbers))),
        stoker.Dataset.range(9).scan(0, lambda state, _: (state, next(numbers))),
    ):
        resume = _resumed(dataset, 0)
        with pytest.warns(UserWarning, match="has a state"):
            resume()


def test_reading_and_taking_a_state_do_not_warn():
    numbers = itertools.count()
    iterator = iter(stoker.Dataset.range(3).map(lambda x: (x, next(numbers))))
    assert next(iterator) == (0, 0)
    assert iterator.state_dict()["position"] == 1
