"""prefetch: a thread reads ahead."""

import threading
import time
from typing import Any

import numpy as np
import pytest

from stoker import Dataset
from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.prefetch import Prefetch
from stoker.dataset.nodes.range import Range
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import AUTOTUNE, Context, Node
from stoker.errors import FailedPreconditionError

SECONDS = 20.0
SIZES = [AUTOTUNE, 0, 1, 2, 16]


def prefetched(function: Any, n: int, size: int) -> Stream:
    source = Map(input=Range(start=0, stop=n, step=1), function=Pickled.of(function))
    return open_stream(Prefetch(input=source, buffer_size=size), Context())


def read(stream: Stream, *, chunks: bool = False) -> list[Any]:
    out: list[Any] = []
    while True:
        try:
            chunk = stream.next_chunk(7, 1 << 20) if chunks else [stream.next()]
        except StopIteration:
            return out
        except ValueError as error:
            out.append(repr(error))
            continue
        if not chunk:
            return out
        out += chunk


def fail_at_threes(x: int) -> int:
    if x % 3 == 0:
        raise ValueError(x)
    return x


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chunks", [False, True])
def test_elements_and_errors_keep_their_positions(size: int, chunks: bool) -> None:
    stream = prefetched(fail_at_threes, 100, size)
    expected = [f"ValueError({x})" if x % 3 == 0 else x for x in range(100)]
    assert read(stream, chunks=chunks) == expected
    assert stream.next_chunk(3, 100) == []
    with pytest.raises(StopIteration):
        stream.next()
    stream.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("skip", [0, 1, 10, 200])
def test_advance_equals_dropping(size: int, before: int, skip: int) -> None:
    stream = prefetched(lambda x: x, 100, size)
    assert [stream.next() for _ in range(before)] == list(range(before))
    assert stream.advance(skip) == min(skip, 100 - before)
    assert read(stream) == list(range(before + skip, 100))
    stream.close()


def test_advance_before_reading_computes_nothing() -> None:
    called: list[int] = []
    stream = prefetched(called.append, 10**9, 4)
    assert stream.advance(10**9) == 10**9
    stream.close()
    assert called == []


def test_it_reads_ahead_as_far_as_the_buffer_and_no_further() -> None:
    called: list[int] = []
    reached, too_far = threading.Event(), threading.Event()

    def function(x: int) -> int:
        called.append(x)
        if x == 5:
            reached.set()
        if x > 5:
            too_far.set()
        return x

    stream = prefetched(function, 100, 5)
    assert stream.next() == 0
    assert reached.wait(SECONDS)  # the one taken, and five ahead
    assert not too_far.wait(0.05)
    stream.close()
    assert called == [0, 1, 2, 3, 4, 5]


def held_ahead(stream: Stream) -> int:
    """Return the number of buffered elements once the reader thread is idle."""
    reader = stream._reader  # type: ignore[attr-defined]
    deadline = time.monotonic() + SECONDS
    while True:
        with reader.lock:
            if not reader.reading and stream._room() == 0:  # type: ignore[attr-defined]
                return len(stream._buffer)  # type: ignore[attr-defined]
        assert time.monotonic() < deadline


def drained(stream: Stream) -> list[Any]:
    """All the stream holds and one more, for which it waits."""
    with stream._reader.lock:  # type: ignore[attr-defined]  # meanwhile nothing comes
        held = len(stream._buffer)  # type: ignore[attr-defined]
        return [stream.next() for _ in range(held + 1)]


def test_autotune_grows_when_the_consumer_empties_a_full_buffer() -> None:
    stream = prefetched(lambda x: x, 10**6, AUTOTUNE)
    seen = [stream.next()]
    for most in (4, 8, 16, 32, 64):
        assert most * 3 // 4 <= held_ahead(stream) <= most
        seen += drained(stream)
    assert 96 <= held_ahead(stream) <= 128
    seen += [stream.next() for _ in range(32)]  # no need to grow
    assert held_ahead(stream) <= 128
    assert seen == list(range(len(seen)))
    stream.close()


def test_autotune_holds_no_more_than_its_bytes() -> None:
    one = 4 << 20
    function = Pickled.of(lambda _: np.empty(one, np.uint8))
    node = Prefetch(
        input=Map(input=Range(start=0, stop=1000, step=1), function=function), buffer_size=AUTOTUNE
    )
    stream = open_stream(node, Context(autotune_bytes=10 * one))
    stream.next()
    for _ in range(5):
        held_ahead(stream)
        drained(stream)
    assert held_ahead(stream) == 10
    stream.close()


class Closing(Node, frozen=True, eq=False, kw_only=True):
    closed: threading.Event
    gate: threading.Event | None = None
    before_gate: int = 0

    def open(self, context: Context) -> Stream:
        return ClosingStream(self)


class ClosingStream(Stream):
    def __init__(self, node: Closing) -> None:
        self._node = node
        self._read = 0

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        self._read += 1
        if self._node.gate is not None and self._read > self._node.before_gate:
            self._node.gate.wait(SECONDS)
        return [self._read]

    def close(self) -> None:
        self._node.closed.set()


def test_close_half_way_closes_the_input_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    closed = threading.Event()
    stream = open_stream(Prefetch(input=Closing(closed=closed), buffer_size=3), Context())
    assert stream.next() == 1
    stream.close()
    assert closed.wait(SECONDS)
    deadline = time.monotonic() + SECONDS
    while set(threading.enumerate()) - before:
        assert time.monotonic() < deadline


def test_the_input_closes_after_a_read_that_outlasts_close() -> None:
    closed, gate = threading.Event(), threading.Event()
    node = Prefetch(input=Closing(closed=closed, gate=gate), buffer_size=3)
    stream = open_stream(node, Context())
    failed: list[BaseException] = []

    def consume() -> None:
        try:
            stream.next()
        except FailedPreconditionError as error:
            failed.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    deadline = time.monotonic() + SECONDS
    while not stream._reader.reading:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
    stream.close()
    consumer.join(SECONDS)
    assert not closed.is_set()
    gate.set()
    assert closed.wait(SECONDS)
    assert len(failed) == 1


def test_a_lone_element_is_seen_as_soon_as_it_is_there() -> None:
    closed, gate = threading.Event(), threading.Event()
    node = Closing(closed=closed, gate=gate, before_gate=1)
    stream = open_stream(Prefetch(input=node, buffer_size=16), Context())
    assert stream.next_chunk(10, 1 << 20) == [1]
    assert not gate.is_set()
    gate.set()
    assert stream.next_chunk(1, 1 << 20) == [2]
    stream.close()


def test_close_does_not_wait_for_a_running_function() -> None:
    closed, gate = threading.Event(), threading.Event()
    node = Closing(closed=closed, gate=gate, before_gate=1)
    stream = open_stream(Prefetch(input=node, buffer_size=16), Context())
    assert stream.next() == 1
    deadline = time.monotonic() + SECONDS
    while not stream._reader.reading:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
    stream.close()
    assert not closed.is_set()  # the read still runs, and closes the input when it returns
    gate.set()
    assert closed.wait(SECONDS)


def test_a_buffer_of_0_computes_nothing_ahead() -> None:
    called: list[int] = []
    iterator = iter(Dataset.range(100).map(called.append).prefetch(0))
    next(iterator)
    assert called == [0]
    assert len(list(iterator)) == 99


def test_without_a_size_it_is_chosen() -> None:
    dataset = Dataset.range(100).prefetch(None)
    node = dataset.node
    assert isinstance(node, Prefetch)
    assert node.buffer_size == AUTOTUNE
    assert list(dataset) == list(range(100))
