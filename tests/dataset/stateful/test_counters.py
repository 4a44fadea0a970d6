"""Counters and collections that each call changes are found; caches and statistics are not."""

import collections
import functools
import io
import logging
import random
import sys
import threading
import time
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

from stoker import Dataset
from stoker.dataset.stateful.functions import state_of, stateful_functions

CALLS = 0
HANDLE: Any = None
STATE: dict[str, Any] = {"calls": 0, "seconds": 0.0, "last": (None, None)}
SPACE = types.SimpleNamespace(calls=0)
SEEN: list[int] = []
PRIMES = [2, 3]
FIBONACCI = {0: 0, 1: 1}
DEVICES = ["a", "b"]
TABLE = np.arange(10.0)
TABLE_IS_SCALED = False
lock = threading.Lock()
logger = logging.getLogger(__name__)


class Sample(NamedTuple):
    x: Any
    number: int


def decode(x, **_):
    return x


class Calls:
    count = 0

    def __init__(self):
        self.calls = 0
        self.history: list[int] = []
        self.memory: dict[int, int] = {}
        self.stack: list[int] = []
        self.window: collections.deque[int] = collections.deque(maxlen=3)
        self.sizes = {"n": 0}

    def in_item(self, x):
        self.sizes["n"] += x
        return self.sizes["n"]

    def mean(self, x):
        self.history.append(x)
        return np.mean(self.history)

    def windowed(self, x):
        self.window.append(x)
        return list(self.window)

    def of_class(self, x):
        Calls.count += 1
        return x, Calls.count

    def locked(self, x):
        with lock:
            self.calls += 1
            index = self.calls
        return Sample(decode(x), index)

    def balanced(self, x):
        self.stack.append(x)
        depth = len(self.stack)
        self.stack.pop()
        return depth

    def remembered(self, x):
        self.calls += 1
        if x not in self.memory:
            self.memory[x] = x * x
        return self.memory[x]

    def logged_mean(self, x):
        self.history.append(x)
        mean = sum(self.history) / len(self.history)
        logger.debug("mean %s of %s", mean, len(self.history))
        return x


def in_dict(x):
    STATE["calls"] += 1
    return x, STATE["calls"]


def in_object(x):
    SPACE.calls += 1
    return x + SPACE.calls


def in_some_calls(x):
    global CALLS
    if x > 3:
        CALLS += 1
    return x, CALLS


def through_locals(x):
    global CALLS
    CALLS += 1
    index = CALLS
    result = {"x": decode(x)}
    result["index"] = index
    return result


def over_lines(x):
    global CALLS
    CALLS = CALLS + 1
    return (
        decode(x),
        [
            CALLS,
        ],
    )


def as_text(x):
    global CALLS
    CALLS += 1
    return f"{x}-{CALLS}"


def collects(x):
    SEEN.append(x)
    return len(SEEN)


def collects_in_default(x, seen=[]):  # noqa: B006 - the mistake that is found
    seen.append(x)
    return x, list(seen)


def counts_in_default(x, *, count=[0]):  # noqa: B006
    count[0] += 1
    return x, count[0]


def yields(x):
    global CALLS
    CALLS += 1
    yield x
    yield CALLS


def closures() -> dict[str, Any]:
    counts = [0]
    total = 0.0

    def in_list(x):
        counts[0] += 1
        return x, counts[0]

    def running(x):
        nonlocal total
        total = total + x
        return total

    return {"list": (in_list, "`counts[0]`, a counter"), "sum": (running, "`total`, a counter")}


CHANGED: dict[str, Any] = {
    "dict": (in_dict, "`STATE['calls']`, a counter"),
    "object": (in_object, "`SPACE.calls`, a counter"),
    "some calls": (in_some_calls, "`CALLS`, a counter"),
    "through locals": (through_locals, "`CALLS`, a counter"),
    "over lines": (over_lines, "`CALLS`, a counter"),
    "text": (as_text, "`CALLS`, a counter"),
    "list": (collects, "`SEEN`, to which each call adds"),
    "default": (collects_in_default, "`seen`, to which each call adds"),
    "counter in default": (counts_in_default, "`count[0]`, a counter"),
    "generator function": (yields, "`CALLS`, a counter"),
    "item of an attribute": (Calls().in_item, "`self.sizes['n']`, a counter"),
    "mean": (Calls().mean, "`self.history`, to which each call adds"),
    "window": (Calls().windowed, "`self.window`, to which each call adds"),
    "class": (Calls().of_class, "`Calls.count`, a counter"),
    "under a lock": (Calls().locked, "`self.calls`, a counter"),
    "local list": closures()["list"],
    "sum": closures()["sum"],
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_each_call_changes_and_returns_is_named(name):
    function, expected = CHANGED[name]
    assert state_of(function) == expected


def memoized(x, memory={}):  # noqa: B006
    if x not in memory:
        memory[x] = x * x
    return memory[x]


def memoized_in_list(x):
    while len(PRIMES) <= x:
        PRIMES.append(next(n for n in range(PRIMES[-1], 999) if all(n % p for p in PRIMES)))
    return PRIMES[x]


def memoized_sum(x):
    if x not in FIBONACCI:
        FIBONACCI[x] = memoized_sum(x - 1) + memoized_sum(x - 2)
    return FIBONACCI[x]


def last_result(x):
    if STATE["last"][0] != x:
        STATE["last"] = x, decode(x)
    return STATE["last"][1]


def timed(x):
    begin = time.monotonic()
    result = decode(x)
    STATE["seconds"] += time.monotonic() - begin
    STATE["calls"] += 1
    mean = STATE["seconds"] / STATE["calls"]
    if STATE["calls"] % 100 == 0:
        print(mean)  # noqa: T201
    return result


def progress(x):
    global CALLS
    CALLS += 1
    text = f"{CALLS} calls"
    sys.stderr.write(text)
    return x


def opened_lazily(x):
    global HANDLE
    HANDLE = HANDLE or io.BytesIO(bytes(100))
    HANDLE.seek(x)
    return HANDLE.read(1)


def scaled_once(x):
    global TABLE, TABLE_IS_SCALED
    if not TABLE_IS_SCALED:
        TABLE = TABLE / 10
        TABLE_IS_SCALED = True
    return TABLE[x] + TABLE.sum()


def in_turn(x):
    global CALLS
    CALLS += 1
    device = DEVICES[CALLS % 2]
    return decode(x, device=device)


def requests(x):
    global CALLS
    CALLS += 1
    answer = decode(x, request=CALLS)
    return answer  # noqa: RET504


def retries(x):
    global CALLS
    while True:
        try:
            return decode(x)
        except OSError:
            CALLS += 1
            if CALLS > 3:
                raise


def reseeded(x, rng=random.Random(0)):  # noqa: B008
    rng.seed(x)
    return rng.random()


def given_list(x):
    def walk(tree, found):
        found.append(tree)
        return found

    return walk(x, [])


def new_list(x, parts=()):
    parts = list(parts)
    parts.append(x)
    return parts


def new_default(x, parts=[]):  # noqa: B006
    parts = list(parts)
    parts.append(x)
    return parts


def collected_for_later(x):
    SEEN.append(x)
    return SEEN[-1]


def prints(x, out=io.StringIO()):  # noqa: B008
    print(x, file=out)
    return x


def logs(x, log=logger):
    log.info("element %s", x)
    return x


def local_attributes(x):
    space = types.SimpleNamespace(n=0)
    space.n += x
    return space.n


@functools.cache
def cached(x):
    return x * x


class Lazy:
    _model: Any = None
    calls = 0

    @property
    def model(self):
        if self._model is None:
            self._model = {"bias": 1}
        return self._model

    def __call__(self, x):
        self.calls += 1
        return x + self.model["bias"]


INNOCENT: dict[str, Any] = {
    "memo in a default": memoized,
    "memo in a list": memoized_in_list,
    "memo of sums": memoized_sum,
    "last result": last_result,
    "mean time": timed,
    "progress": progress,
    "lazy handle": opened_lazily,
    "scaled once": scaled_once,
    "devices in turn": in_turn,
    "number of a request": requests,
    "retries": retries,
    "generator that is seeded": reseeded,
    "list of the caller": given_list,
    "copy of a default": new_default,
    "copy": new_list,
    "item added": collected_for_later,
    "printing": prints,
    "logger": logs,
    "local object": local_attributes,
    "cache": cached,
    "lazy property": Lazy(),
    "stack": Calls().balanced,
    "memory of an object": Calls().remembered,
    "statistics of an object": Calls().logged_mean,
}


@pytest.mark.parametrize("name", INNOCENT)
def test_caches_statistics_and_handles_are_not_reported(name):
    assert state_of(INNOCENT[name]) == ""


def test_file_for_writing_is_not_reported(tmp_path):
    with (tmp_path / "log").open("w") as log, (tmp_path / "log").open() as lines:
        assert state_of(lambda x: (log.flush(), x)) == ""
        assert state_of(lambda x: (next(lines), x)) == "`lines` (_io.TextIOWrapper)"


def test_functions_of_a_tree_are_named_in_the_order_of_the_nodes():
    dataset = Dataset.range(3).map(in_dict).map(memoized).filter(lambda *x: collects(x) > 0)
    found = list(stateful_functions(dataset.node))
    assert [each.node.kind for each in found] == ["map", "filter"]
    assert str(found[0]).startswith("the function of `map` (")
    assert str(found[0]).endswith("has a state: `STATE['calls']`, a counter")
