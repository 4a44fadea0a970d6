"""Calls in flight, and calls that end a process, are known by the positions of the whole epoch."""

from typing import Any

import pytest

import stoker
from stoker import Dataset
from stoker.dataset.positions.position_stream import open_positions
from stoker.dataset.streams.calls.call_ranges import (
    CallRange,
    PoisonedCall,
    digest_of,
    stream_of,
)
from stoker.dataset.streams.calls.call_recorder import RECORD_BYTES, CallRecorder, read_calls
from stoker.dataset.streams.calls.task_calls import TaskCalls
from stoker.dataset.tree.node import Context, number
from stoker.errors import PoisonedElementError

TASK = 7


class Run:
    """Reads positions; `look` is a function that notes the calls in flight, by its element."""

    def __init__(self) -> None:
        self.memory = bytearray(RECORD_BYTES)
        self.seen: dict[int, list[CallRange]] = {}

    def calls(self) -> list[CallRange]:
        return [each.calls for each in read_calls(bytes(self.memory))]

    def look(self, x: int) -> int:
        self.seen[int(x)] = self.calls()
        return x

    def read(self, dataset: Dataset, turns: list[range], **marks: Any) -> dict[int, Any]:
        """Return the elements and errors by their positions."""
        calls = TaskCalls(CallRecorder(memoryview(self.memory)), TASK, **marks)
        context = Context(calls=calls, epoch=(2,))
        stream = open_positions(dataset.node, context, iter(turns))
        found: dict[int, Any] = {}
        try:
            while True:
                try:
                    positions, elements = stream.next_chunk(50, 1 << 20)
                except PoisonedElementError as error:
                    found[stream.position] = error
                    continue
                if not positions:
                    assert self.calls() == []
                    return found
                found |= dict(zip(positions, elements, strict=True))
        finally:
            stream.close()


def stream_at(dataset: Dataset, kind: str) -> int:
    [found] = [place for node, place in number(dataset.node).items() if node.kind == kind]
    return stream_of(found, (2,))


@pytest.mark.parametrize("calls", [None, 2, stoker.AUTOTUNE])
@pytest.mark.parametrize("ahead", [0, 4])
def test_calls_in_flight_have_positions_of_the_whole_epoch(calls, ahead):
    run = Run()
    dataset = Dataset.range(1000).skip(10).prefetch(ahead).map(run.look, calls).batch(4)
    turns = [range(50, 53), range(3, 9, 2), range(8, 9)]
    run.read(dataset, turns)
    stream = stream_at(dataset, "map")
    assert len(run.seen) == 28
    for x, in_flight in run.seen.items():
        # The input of the map is counted from the source: `skip` is before the map.
        assert any(each.stream == stream and each.first <= x - 10 < each.stop for each in in_flight)
        assert all(each.first >= 12 and each.stop <= 212 for each in in_flight)
        if calls == 2:
            assert all(each.stop == each.first + 1 for each in in_flight)


@pytest.mark.parametrize("calls", [None, 2])
def test_a_call_that_ends_the_process_is_an_error_at_its_position(calls):
    run = Run()
    dataset = Dataset.range(200).map(run.look, calls).map(abs, calls)
    stream = stream_of(1, (2,))
    poisoned = [PoisonedCall(stream, 42, digest_of(42), "it died")]
    found = run.read(dataset, [range(100, 110), range(2, 90, 8), range(40, 50)], poisoned=poisoned)
    assert 42 not in run.seen
    assert sorted(found) == sorted({*range(100, 110), *range(2, 90, 8), *range(40, 50)})
    assert [k for k, x in found.items() if isinstance(x, PoisonedElementError)] == [42]
    assert "for element 42 of its input" in str(found[42])


@pytest.mark.parametrize("ahead", [0, 4])
def test_traced_calls_are_recorded_singly(ahead):
    run = Run()
    dataset = Dataset.range(200).prefetch(ahead).map(run.look)
    stream = stream_at(dataset, "map")
    turns = [range(60, 90), range(0, 60, 3), range(1, 60, 3)]
    run.read(dataset, turns, traced=[CallRange(stream, 20, 30)])
    for x in range(20, 30):
        if x % 3 < 2:
            assert run.seen[x] == [CallRange(stream, x, x + 1)]
    assert sum(len(in_flight) == 1 for in_flight in run.seen.values()) == len(run.seen)
    widths = {each.stop - each.first for in_flight in run.seen.values() for each in in_flight}
    assert max(widths) > 1


def test_a_suspect_runs_alone_at_its_position():
    run = Run()
    dataset = Dataset.range(200).map(run.look, 3)
    stream = stream_at(dataset, "map")
    run.read(dataset, [range(100, 120), range(30, 50)], suspects=[CallRange(stream, 41, 42)])
    assert run.seen[41] == [CallRange(stream, 41, 42)]
