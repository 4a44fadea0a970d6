"""AUTOTUNE on real threads: more where calls wait, within its bytes, in order."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stoker import AUTOTUNE, Dataset, Options
from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.range import Range
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context

SECONDS = 20.0
ENDLESS = 10**9
MIB = 1 << 20


class ConcurrentCalls:
    """A function that waits, as for the network, and counts its concurrent calls.

    Args:
        enough: number of concurrent calls after which no call waits any longer.
    """

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.most = 0
        self._running = 0
        self._lock = threading.Lock()
        self._seen = threading.Event()

    def __call__(self, x: int) -> int:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
            if self.most >= self.enough:
                self._seen.set()
        self._seen.wait(10e-3)  # long enough that 128 concurrent calls do not keep a core busy
        with self._lock:
            self._running -= 1
        return x


def read_until(dataset: Dataset, done: Callable[[], bool]) -> list[Any]:
    """Return the elements read until `done` is true, then close the iterator."""
    deadline = time.monotonic() + SECONDS
    seen = []
    with dataset.iterator() as iterator:
        for element in iterator:
            seen.append(element)
            if done():
                return seen
            assert time.monotonic() < deadline, "it did not come to that"
    raise AssertionError("the dataset ended")


def test_calls_that_wait_get_more_threads_than_there_are_cores() -> None:
    calls = ConcurrentCalls(enough=32)
    seen = read_until(
        Dataset.range(ENDLESS).map(calls, num_parallel_calls=AUTOTUNE), lambda: calls.most >= 32
    )
    assert seen == list(range(len(seen)))


def test_map_and_batch_in_one_step_is_tuned_too() -> None:
    calls = ConcurrentCalls(enough=32)
    dataset = Dataset.range(ENDLESS).map(calls, num_parallel_calls=AUTOTUNE).batch(8)
    batches = read_until(dataset, lambda: calls.most >= 32)
    assert np.concatenate(batches).tolist() == list(range(8 * len(batches)))


def test_the_threads_of_the_options_are_the_most() -> None:
    calls = ConcurrentCalls(enough=ENDLESS)
    dataset = Dataset.range(600).map(calls, num_parallel_calls=AUTOTUNE)
    assert list(dataset.with_options(Options(threads=4))) == list(range(600))
    assert calls.most <= 4


def test_one_slow_call_does_not_stop_the_others() -> None:
    """However far the others have to go on: the window widens."""
    gate = threading.Event()

    def function(x: int) -> int:
        if x == 200:
            assert gate.wait(SECONDS), "nothing was computed behind the slow call"
        if x == 700:
            gate.set()
        threading.Event().wait(300e-6)
        return x

    dataset = Dataset.range(1_000).map(function, num_parallel_calls=AUTOTUNE)
    assert list(dataset) == list(range(1_000))


class Counted:
    """A function whose results are of 1 MiB; knows how many are made and not yet read."""

    def __init__(self, wait: float) -> None:
        self.begun = 0
        self.read = 0
        self.most = 0
        self._wait = wait
        self._lock = threading.Lock()

    def __call__(self, x: int) -> Any:
        with self._lock:
            self.begun += 1
            self.most = max(self.most, self.begun - self.read)
        threading.Event().wait(self._wait)
        return np.zeros(MIB, np.uint8)


@pytest.mark.parametrize("slow_consumer", [False, True])
def test_results_ahead_are_bounded_by_autotune_bytes(*, slow_consumer: bool) -> None:
    counted = Counted(wait=1e-3)
    dataset = Dataset.range(600).map(counted, num_parallel_calls=AUTOTUNE)
    for _ in dataset.with_options(Options(autotune_bytes=8 * MIB)):
        if slow_consumer:
            threading.Event().wait(2e-3)
        counted.read += 1
    assert counted.read == 600
    assert 2 < counted.most <= 8 + 1  # and the one being read


def test_inputs_read_before_the_threads_begin_count_too() -> None:
    counted = Counted(wait=1e-3)
    function = Pickled.of(counted)
    node = Map(
        input=Range(start=0, stop=600, step=1), function=function, num_parallel_calls=AUTOTUNE
    )
    stream = open_stream(node, Context(autotune_bytes=8 * MIB))
    while chunk := stream.next_chunk(600, 1 << 40):
        counted.read += len(chunk)
    stream.close()
    assert counted.read == 600
    assert counted.most <= 8 + 8  # ahead, and in the chunk


def test_a_result_larger_than_all_bytes_allowed_still_comes() -> None:
    counted = Counted(wait=1e-3)
    dataset = Dataset.range(100).map(counted, num_parallel_calls=AUTOTUNE)
    assert len(list(dataset.with_options(Options(autotune_bytes=1)))) == 100
    batched = dataset.batch(32).with_options(Options(autotune_bytes=1))
    assert [len(batch) for batch in batched] == [32, 32, 32, 4]


def test_close_half_way_leaves_no_thread_of_many() -> None:
    calls = ConcurrentCalls(enough=64)
    before = set(threading.enumerate())
    read_until(
        Dataset.range(ENDLESS).map(calls, num_parallel_calls=AUTOTUNE), lambda: calls.most >= 64
    )
    for thread in set(threading.enumerate()) - before:
        thread.join(SECONDS)  # a call that ran may take its moment
        assert not thread.is_alive()


def test_several_maps_and_nested_datasets_do_not_deadlock() -> None:
    outer, inner = ConcurrentCalls(enough=16), ConcurrentCalls(enough=16)

    def function(x: int) -> int:
        return sum(Dataset.range(x % 4).map(inner, num_parallel_calls=AUTOTUNE)) + outer(x)

    dataset = (
        Dataset.range(600)
        .map(function, num_parallel_calls=AUTOTUNE)
        .map(ConcurrentCalls(enough=1), num_parallel_calls=AUTOTUNE)
        .map(function, num_parallel_calls=AUTOTUNE)
        .prefetch(AUTOTUNE)
    )
    once = [x + sum(range(x % 4)) for x in range(600)]
    assert list(dataset) == [x + sum(range(x % 4)) for x in once]


@pytest.mark.parametrize("passed", [1, 50, 5_000])
def test_advance_equals_dropping_while_the_limit_rises(passed: int) -> None:
    calls = ConcurrentCalls(enough=16)
    node = Map(
        input=Range(start=0, stop=6_000, step=1),
        function=Pickled.of(calls),
        num_parallel_calls=AUTOTUNE,
    )
    stream = open_stream(node, Context())
    assert [stream.next() for _ in range(100)] == list(range(100))
    assert stream.advance(passed) == passed
    assert [stream.next() for _ in range(100)] == list(range(100 + passed, 200 + passed))
    stream.close()


def test_errors_keep_their_positions_while_the_limit_rises() -> None:
    calls = ConcurrentCalls(enough=ENDLESS)

    def function(x: int) -> int:
        if x % 7 == 3:
            raise ValueError(x)
        return calls(x)

    iterator = iter(Dataset.range(500).map(function, num_parallel_calls=AUTOTUNE))
    seen: list[Any] = []
    while True:
        try:
            seen.append(next(iterator))
        except StopIteration:
            break
        except ValueError as error:
            seen.append(error.args)
    assert seen == [(x,) if x % 7 == 3 else x for x in range(500)]
    assert calls.most > 2
