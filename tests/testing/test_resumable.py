"""`assert_resumable` names the first node that an interruption changes, and passes others."""

import functools
import itertools
import os
import random
import signal
import string
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import stoker
from stoker import Dataset
from stoker.compat import tf
from stoker.errors import InvalidArgumentError, InvalidTypeError, UnavailableError
from stoker.testing import assert_resumable
from stoker.testing.resumable import _positions

WORDS = {"a", "b", "c", "d", "e", "f"}
SEEN: list[int] = []
PREVIOUS: dict[str, int] = {}
count = 0


class Point(NamedTuple):
    x: Any
    y: Any


def square(x):
    return x * x


def fails_at_multiples(x):
    if x % 3 == 0:
        raise ValueError(f"no {x} at {object()}")
    return x


def noisy(x):
    return x + stoker.random.generator().normal(size=3)


def sorted_words(x):
    return {"words": np.array(sorted(WORDS)), "n": x, "point": Point(x, (str(x), None, b"b"))}


def memoized(x, memory={}):  # noqa: B006
    if x not in memory:
        memory[x] = x * x
    return memory[x]


def counted(x):
    global count
    count += 1
    return x, count


def kept(x):
    """Return whether this is one of every other call, which no element shows."""
    SEEN.append(x)
    return len(SEEN) % 2 == 0


def since_last(x):
    last = PREVIOUS.get("x", 0)
    PREVIOUS["x"] = x
    return x - last


def words(x):
    return list(WORDS)[x % 6]


def kept_by_a_package(x):
    string.calls = getattr(string, "calls", 0) + 1  # type: ignore[attr-defined]
    return x + string.calls  # type: ignore[attr-defined]


class Model:
    """An object per worker that remembers its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x + self.calls


model = stoker.per_worker(Model)
stable = stoker.per_worker(functools.partial(np.arange, 100))


def text_file(folder: Path) -> str:
    path = folder / "lines.txt"
    path.write_text("".join(f"{i}\n" for i in range(40)))
    return str(path)


def nested(x):
    return Dataset.range(x % 4)


RESUMABLE = {
    "empty": lambda _: Dataset.range(0),
    "shuffled draws": lambda _: Dataset.range(30).shuffle(9).map(noisy, num_parallel_calls=3),
    "errors": lambda _: Dataset.range(20).map(fails_at_multiples, num_parallel_calls=2).prefetch(4),
    "errors in batches": lambda _: Dataset.range(20).map(fails_at_multiples).batch(2),
    "structures": lambda _: Dataset.range(9).map(sorted_words),
    "memory of a function": lambda _: Dataset.range(9).map(memoized),
    "object per worker": lambda _: Dataset.range(9).map(lambda x: stable.get()[x]),
    "endless": lambda _: Dataset.range(5).shuffle(5).repeat().batch(3),
    "file": lambda folder: Dataset.text_lines(text_file(folder)).map(int).filter(lambda x: x % 3),
    "nested": lambda _: Dataset.range(9).flat_map(nested).batch(2),
    "interleaved": lambda _: Dataset.range(6).interleave(nested, cycle_length=2),
    "scan": lambda _: Dataset.range(9).enumerate().scan(0, lambda s, x: (s + x[1], (x[0], s))),
    "zip": lambda _: Dataset.zip((Dataset.range(9).shuffle(3), Dataset.range(20).map(noisy))),
    "cache": lambda folder: Dataset.range(9).map(square).cache(str(folder / "cache")),
    "cache in memory": lambda _: Dataset.range(9).shuffle(9).cache().map(noisy),
    "generator": lambda _: Dataset.from_generator(lambda: iter("abcdef")).batch(2),
    "tf.data": lambda _: (
        tf.data.Dataset.from_tensor_slices([b"a", b"b", b"c"]).shuffle(3).repeat(2)
    ),
    "window": lambda _: Dataset.range(9).window(2),
    "sets": lambda _: Dataset.range(3).map(lambda x: (x, frozenset(WORDS), np.float32("nan"))),
    "ragged": lambda _: Dataset.range(9).map(np.arange).ragged_batch(2),
}


@pytest.mark.parametrize("name", RESUMABLE)
def test_deterministic_pipelines_pass(name, tmp_path):
    assert_resumable(RESUMABLE[name](tmp_path), max_elements=60)


def failure(dataset: Dataset, **options: Any) -> str:
    with pytest.raises(AssertionError, match=r"^the dataset is not resumable: ") as caught:
        assert_resumable(dataset, **options)
    return str(caught.value)


CHANGING: dict[str, tuple[Any, str]] = {
    "counter": (counted, "has a state: `count`, a counter; count with enumerate()"),
    "last element": (since_last, "must not depend on earlier calls"),
    "global random": (lambda x: x + random.random(), "stoker.random.generator()"),
    "NumPy's global random": (lambda x: x + np.random.rand(), "not from random or numpy.random"),  # noqa: NPY002
    "sets": (words, "sort sets"),
    "hashes": (lambda x: hash(str(x)), "hash()"),
    "time": (lambda x: time.perf_counter_ns(), "use no time"),
    "process": (lambda x: os.getpid(), "process id"),
    "variable of a package": (kept_by_a_package, "must not depend on earlier calls"),
    "object per worker": (model, "must not depend on earlier calls"),
    "errors": (lambda x: 1 // random.choice([0, 1]), "stoker.random.generator()"),
    "dtypes": (lambda x: np.array([x], random.choice(["f4", "f8"])), "stoker.random.generator()"),
    "keys": (lambda x: {random.choice("abcdef"): x}, "stoker.random.generator()"),
}


@pytest.mark.parametrize("name", CHANGING)
def test_changing_function_is_named(name):
    function, advice = CHANGING[name]
    dataset = Dataset.range(40).map(square).map(function).prefetch(2).batch(4)
    message = failure(dataset)
    assert "of `map` (tests/testing/test_resumable.py:" in message
    assert f":{test_changing_function_is_named.__code__.co_firstlineno + 3})" in message
    assert advice in message


def test_message_has_the_position_and_both_values():
    message = failure(Dataset.range(5).skip(2).map(counted), epoch=3)
    assert "element 0 of `map`" in message
    assert "in epoch 3 differs\n  from the beginning: [1] is 1\n  once more: [1] is 4\n" in message


def test_first_of_several_nodes_is_named():
    line = sys._getframe().f_lineno + 2
    dataset = Dataset.range(9).shuffle(9)
    dataset = dataset.map(lambda x: x + random.random())
    assert f"`map` (tests/testing/test_resumable.py:{line})" in failure(dataset.map(words_of_any))


def words_of_any(_):
    return list(WORDS)


def test_filter_with_a_state_is_named():
    assert "of `filter` (" in failure(Dataset.range(21).filter(kept).map(square).batch(2))


def test_input_of_a_zip_is_named():
    line = sys._getframe().f_lineno + 1
    parts = (Dataset.range(9).map(square), Dataset.range(9).map(words))
    message = failure(Dataset.zip(parts).batch(3))
    assert f"of `map` (tests/testing/test_resumable.py:{line})" in message


def test_fault_behind_a_selective_filter_is_found():
    dataset = Dataset.range(5_000).map(counted).filter(lambda x, _: x % 1_000 == 999)
    assert "of `map` (" in failure(dataset)


def test_source_that_changes_is_named(tmp_path):
    path = tmp_path / "changes.txt"
    path.write_text("a\nb\nc\n")
    stop = threading.Event()

    def write():
        with path.open("a") as file:
            while not stop.wait(0.001):
                file.write("more\n")
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        message = failure(Dataset.text_lines(str(path)).map(len), max_elements=100_000)
    finally:
        stop.set()
        writer.join()
    assert f"of `{Dataset.text_lines(str(path)).node.kind}` (" in message
    assert message.endswith("read files that nobody writes")


def test_function_that_writes_its_source_is_named(tmp_path):
    path = tmp_path / "changes.txt"
    path.write_text("a\nb\nc\n")

    def changes(line):
        with path.open("a") as file:
            file.write("more\n")
        return line

    assert "of `map` (" in failure(Dataset.text_lines(str(path)).map(changes), max_elements=9)


def test_generator_with_a_state_is_named():
    numbers = iter(range(1_000))
    message = failure(Dataset.from_generator(lambda: itertools.islice(numbers, 9)).map(square))
    assert "`from_generator` (" in message or "`generator` (" in message
    assert "has a state: `numbers`" in message


def test_state_that_shows_late_is_found():
    def resets(x, calls=[]):  # noqa: B006
        calls.append(x)
        if len(calls) == 7:
            calls.clear()
            return -1
        return x

    message = failure(Dataset.range(13).map(resets))
    assert "of `map` (" in message
    assert "must not depend on earlier calls" in message


def test_long_epoch_is_interrupted_at_some_positions():
    begin = time.monotonic()
    assert_resumable(Dataset.range(10**9).map(square), max_elements=20_000, max_positions=10)
    assert time.monotonic() - begin < 30
    assert "`count`" in failure(Dataset.range(10**9).map(counted), max_positions=2)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9, 10, 1_000])
@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_positions_are_the_first_the_last_and_others(count, most):
    positions = _positions(count, most)
    assert len(positions) == min(count, most)
    assert positions == sorted(set(positions))
    assert set(positions) <= set(range(count))
    if count and most > 1:
        assert positions[0] == 0
        assert positions[-1] == count - 1


def test_datasets_that_have_no_state_are_no_resumable_ones():
    with stoker.LocalCluster(0) as cluster:
        served = Dataset.range(3).distribute(cluster, "distributed_epoch").batch(2)
        assert "`distribute` (" in failure(served)


def test_bad_arguments_are_refused():
    with pytest.raises(InvalidTypeError, match=r"must be a stoker\.Dataset; got \[1\]"):
        assert_resumable([1])  # type: ignore[arg-type]
    for name in ("max_elements", "max_positions"):
        with pytest.raises(InvalidArgumentError, match=f"`{name}`"):
            assert_resumable(Dataset.range(3), **{name: 0})
    with pytest.raises(InvalidArgumentError, match="`epoch`"):
        assert_resumable(Dataset.range(3), epoch=-1)


def test_variable_that_cannot_be_pickled_is_named():
    lock = threading.Lock()
    with pytest.raises(InvalidArgumentError, match=r"`lock` \(a _thread.lock\), used by"):
        assert_resumable(Dataset.range(3).map(lambda x: (x, lock.locked())))


def test_file_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(AssertionError, match=r"no element .* can be read: NotFoundError: "):
        assert_resumable(Dataset.text_lines(str(tmp_path / "missing")))


def test_function_that_ends_its_process_is_an_error():
    with pytest.raises(UnavailableError, match="exit status 7"):
        assert_resumable(Dataset.range(3).map(lambda x: os._exit(7)))


PROGRAM = """
import stoker
from stoker.testing import assert_resumable

n = 0
class Point:
    def __init__(self, x):
        self.x = x
def count(x):
    global n
    n += 1
    return Point(x + n)
assert_resumable(stoker.Dataset.range(9).map(lambda x: Point(x)))
try:
    assert_resumable(stoker.Dataset.range(9).map(count))
except AssertionError as error:
    print(error)
"""


@pytest.mark.parametrize("way", ["script", "stdin", "command"])
def test_no_main_guard_is_needed(way, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    arguments = {"script": [str(script)], "stdin": ["-"], "command": ["-c", PROGRAM]}[way]
    given = PROGRAM if way == "stdin" else None
    done = subprocess.run(
        [sys.executable, *arguments], input=given, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert "has a state: `n`, a counter" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_children_end_with_their_parent(number, tmp_path):
    pids = tmp_path / "pids"
    program = f"""
        import os, signal, time, stoker
        from stoker.testing import assert_resumable
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def wait(x):
            with open({str(pids)!r}, "a") as file:
                file.write(str(os.getpid()) + "\\n")
            time.sleep(600)
        assert_resumable(stoker.Dataset.range(3).map(wait))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not pids.exists() or not pids.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.send_signal(number)
    parent.wait(30)
    while _state(int(pids.read_text())) not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
