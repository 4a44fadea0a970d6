"""map: inline and on the pool."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stoker import Dataset
from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.range import Range
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import AUTOTUNE, Context, Node
from stoker.errors import InvalidArgumentError

SECONDS = 20.0
WAYS = [None, 1, 3, AUTOTUNE]


class Listed(Node, frozen=True, eq=False, kw_only=True):
    """Reads the given items; exceptions are raised at their position, callables are called."""

    items: tuple[Any, ...]

    def cardinality(self) -> int:
        return len(self.items)

    def open(self, context: Context) -> Stream:
        return ListedStream(self.items)


class ListedStream(Stream):
    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            return [item() if callable(item) else item]
        return []


def numbers(n: int) -> Range:
    return Range(start=0, stop=n, step=1)


def mapped(
    source: Node, function: Callable[..., Any], calls: int | None = None, site: str = ""
) -> Map:
    return Map(input=source, function=Pickled.of(function), num_parallel_calls=calls, site=site)


def read(stream: Stream) -> list[Any]:
    """Everything up to the end; errors as themselves."""
    out: list[Any] = []
    while True:
        try:
            out.append(stream.next())
        except StopIteration:
            return out
        except Exception as error:
            out.append(error)


def read_chunks(stream: Stream, most: int = 7) -> list[Any]:
    out: list[Any] = []
    while True:
        try:
            chunk = stream.next_chunk(most, 1 << 20)
        except Exception as error:
            out.append(error)
            continue
        if not chunk:
            return out
        assert len(chunk) <= most
        out.extend(chunk)


def whole(node: Node) -> list[Any]:
    stream = open_stream(node, Context())
    try:
        return read(stream)
    finally:
        stream.close()


def slow(x: int) -> int:
    """Slow enough to stay on the pool."""
    end = time.perf_counter() + 200e-6
    while time.perf_counter() < end:
        pass
    return x * x


@pytest.mark.parametrize("calls", WAYS)
@pytest.mark.parametrize("function", [slow, lambda x: x * x], ids=["slow", "cheap"])
@pytest.mark.parametrize("reader", [read, read_chunks])
def test_results_come_in_order(
    calls: int | None, function: Callable[[int], int], reader: Callable[[Stream], list[Any]]
) -> None:
    stream = open_stream(mapped(numbers(500), function, calls), Context())
    try:
        assert reader(stream) == [x * x for x in range(500)]
        with pytest.raises(StopIteration):
            stream.next()
        assert stream.next_chunk(5, 100) == []
    finally:
        stream.close()


@pytest.mark.parametrize("calls", WAYS)
def test_plain_tuples_are_unpacked_and_nothing_else(calls: int | None) -> None:
    source = Listed(items=((1, 2), [3, 4], (5, 6), {"a": 7}))
    node = mapped(source, lambda *arguments: arguments, calls)
    assert whole(node) == [(1, 2), ([3, 4],), (5, 6), ({"a": 7},)]
    stream = open_stream(node, Context())
    assert read_chunks(stream) == [(1, 2), ([3, 4],), (5, 6), ({"a": 7},)]
    stream.close()


def fail_at(*bad: int) -> Callable[[int], int]:
    def function(x: int) -> int:
        if x in bad:
            raise ValueError(x)
        return x

    return function


def outline(items: list[Any]) -> list[Any]:
    return [(type(x).__name__, x.args) if isinstance(x, Exception) else x for x in items]


@pytest.mark.parametrize("calls", WAYS)
@pytest.mark.parametrize("reader", [read, read_chunks])
def test_an_error_occupies_its_position(
    calls: int | None, reader: Callable[[Stream], list[Any]]
) -> None:
    stream = open_stream(mapped(numbers(30), fail_at(0, 7, 8, 29), calls), Context())
    expected = [("ValueError", (x,)) if x in (0, 7, 8, 29) else x for x in range(30)]
    assert outline(reader(stream)) == expected
    stream.close()


@pytest.mark.parametrize("calls", WAYS)
def test_an_error_of_the_input_occupies_its_position(calls: int | None) -> None:
    source = Listed(items=(1, KeyError("a"), 2, KeyError("b")))
    assert outline(whole(mapped(source, lambda x: x, calls))) == [
        1,
        ("KeyError", ("a",)),
        2,
        ("KeyError", ("b",)),
    ]


@pytest.mark.parametrize("calls", WAYS)
@pytest.mark.parametrize("reader", [read, read_chunks])
def test_an_error_says_where_it_was_raised(
    calls: int | None, reader: Callable[[Stream], list[Any]]
) -> None:
    source = Listed(items=(0, KeyError("input"), 1, 2))
    stream = open_stream(mapped(source, fail_at(2), calls, site="train.py:12"), Context())
    error = reader(stream)[-1]
    stream.close()
    origin = failure_origin(error)
    assert origin == ("map", "train.py:12", 3, "2")
    assert any("train.py:12" in note and "element 3" in note for note in error.__notes__)


def stop_at_three(x: int) -> int:
    if x == 3:
        raise StopIteration
    return x


@pytest.mark.parametrize("calls", WAYS)
@pytest.mark.parametrize("reader", [read, read_chunks])
def test_a_stop_iteration_of_the_user_does_not_end_the_stream(
    calls: int | None, reader: Callable[[Stream], list[Any]]
) -> None:
    stream = open_stream(mapped(numbers(6), stop_at_three, calls), Context())
    items = reader(stream)
    stream.close()
    assert isinstance(items[3], RuntimeError)
    assert items[:3] + items[4:] == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("calls", WAYS)
@pytest.mark.parametrize("function", [slow, fail_at(4, 40)], ids=["slow", "failing"])
@pytest.mark.parametrize("before", [0, 1, 5])
@pytest.mark.parametrize("skip", [0, 1, 30, 100])
def test_advance_equals_dropping(
    calls: int | None, function: Callable[[int], int], before: int, skip: int
) -> None:
    everything = outline(whole(mapped(numbers(60), function)))
    stream = open_stream(mapped(numbers(60), function, calls), Context())
    for _ in range(before):
        stream.next_chunk(1, 1) if function is slow else outline(read_one(stream))
    assert stream.advance(skip) == min(skip, 60 - before)
    assert outline(read(stream)) == everything[before + skip :]
    stream.close()


def read_one(stream: Stream) -> list[Any]:
    try:
        return [stream.next()]
    except Exception as error:
        return [error]


def test_the_order_is_kept_even_where_any_is_allowed() -> None:
    dataset = Dataset.range(50).map(lambda x: -x, num_parallel_calls=4, deterministic=False)
    assert list(dataset) == [-x for x in range(50)]
    with pytest.raises(InvalidArgumentError, match="`deterministic` must be True or False"):
        Dataset.range(1).map(abs, deterministic=1)  # type: ignore[arg-type]


def test_advance_does_not_call_the_function() -> None:
    called: list[int] = []
    stream = open_stream(mapped(numbers(10**9), called.append), Context())
    assert stream.advance(10**9 - 2) == 10**9 - 2
    stream.next()
    stream.close()
    assert called == [10**9 - 2]


def test_sixteen_functions_that_wait_run_concurrently() -> None:
    barrier = threading.Barrier(16)

    def function(x: int) -> int:
        barrier.wait(SECONDS)
        return x

    assert whole(mapped(numbers(64), function, 16)) == list(range(64))


def test_num_parallel_calls_is_not_exceeded() -> None:
    lock = threading.Lock()
    running, most = 0, 0

    def function(x: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        slow(x)
        with lock:
            running -= 1
        return x

    assert whole(mapped(numbers(200), function, 3)) == list(range(200))
    assert most <= 3


def test_a_lone_element_is_seen_as_soon_as_it_is_done() -> None:
    gate = threading.Event()
    source = Listed(items=(1, lambda: gate.wait(SECONDS) and 2))
    stream = open_stream(mapped(source, lambda x: x, 4), Context())
    assert stream.next_chunk(10, 1 << 20) == [1]  # while the input blocks
    assert not gate.is_set()
    gate.set()
    assert stream.next_chunk(10, 1 << 20) == [2]
    stream.close()


def test_a_chunk_does_not_wait_for_unfinished_calls() -> None:
    gate, third = threading.Event(), threading.Event()

    def function(x: int) -> int:
        if x == 2:
            third.set()
            gate.wait(SECONDS)
        return x

    stream = open_stream(mapped(numbers(4), function, 4), Context())
    first = stream.next()
    assert third.wait(SECONDS)
    taken = [first]
    while len(taken) < 2:
        taken += stream.next_chunk(10, 1 << 20)
    assert taken == [0, 1]
    gate.set()
    assert read(stream) == [2, 3]
    stream.close()


@pytest.mark.parametrize("calls", [2, AUTOTUNE])
def test_nested_parallel_maps_do_not_deadlock(calls: int) -> None:
    def function(x: int) -> int:
        return sum(whole(mapped(numbers(x % 5), slow, 4)))

    expected = [sum(y * y for y in range(x % 5)) for x in range(40)]
    assert whole(mapped(mapped(numbers(40), function, calls), lambda x: x, 2)) == expected


def test_an_outer_stream_read_inside_a_map_does_not_deadlock() -> None:
    inner = open_stream(mapped(numbers(40), slow, 2), Context())
    lock = threading.Lock()

    def function(_: int) -> int:
        with lock:
            return int(inner.next())

    assert sorted(whole(mapped(numbers(40), function, 2))) == [x * x for x in range(40)]
    inner.close()


@pytest.mark.parametrize("calls", [2, AUTOTUNE])
def test_close_half_way_leaves_no_thread_and_closes_the_input(calls: int) -> None:
    before = set(threading.enumerate())
    stream = open_stream(mapped(numbers(1000), slow, calls), Context())
    assert stream.next() == 0
    stream.close()
    stream.close()
    deadline = time.monotonic() + SECONDS
    while set(threading.enumerate()) - before:  # a call that ran may take its moment
        assert time.monotonic() < deadline


def test_close_does_not_wait_for_a_running_function() -> None:
    gate, begun = threading.Event(), threading.Event()

    def function(x: int) -> int:
        if x == 1:
            begun.set()
            gate.wait(SECONDS)
        return x

    stream = open_stream(mapped(numbers(10), function, 2), Context())
    assert stream.next() == 0
    assert begun.wait(SECONDS)
    stream.close()
    assert not gate.is_set()
    gate.set()


def test_close_does_not_wait_for_an_input_that_blocks() -> None:
    gate, begun = threading.Event(), threading.Event()

    def block() -> int:
        begun.set()
        gate.wait(SECONDS)
        return 2

    stream = open_stream(mapped(Listed(items=(1, block)), slow, 2), Context())
    assert stream.next() == 1
    assert begun.wait(SECONDS)
    stream.close()
    assert not gate.is_set()
    gate.set()


def test_a_cheap_function_leaves_the_pool_until_it_is_slow() -> None:
    names: list[str] = []

    def function(x: int) -> int:
        if x in (9_000, 10_999):
            names.append(threading.current_thread().name)
        return x if x < 10_000 else slow(x)

    result = whole(mapped(numbers(11_000), function, 2))
    assert result == [x if x < 10_000 else x * x for x in range(11_000)]
    assert names[0] == threading.current_thread().name


def test_inside_a_pool_thread_maps_run_inline() -> None:
    def function(_: int) -> bool:
        here = threading.current_thread()
        return all(whole(mapped(numbers(3), lambda _: threading.current_thread() is here, 4)))

    in_pool: list[bool] = []

    def outer(x: int) -> int:
        if threading.current_thread().name.startswith("stoker-pool-"):
            in_pool.append(function(x))
        return slow(x)

    whole(mapped(numbers(50), outer, 2))
    assert in_pool
    assert all(in_pool)
