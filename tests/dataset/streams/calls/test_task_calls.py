"""Pipelines whose calls are recorded, run alone, or replaced by an error."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.dataset.dataset import Dataset
from stoker.dataset.streams.calls import call_recorder
from stoker.dataset.streams.calls.call_ranges import (
    NO_DIGEST,
    UNPLACED,
    CallRange,
    PoisonedCall,
    digest_of,
)
from stoker.dataset.streams.calls.call_recorder import (
    RECORD_BYTES,
    CallRecorder,
    RecordedCall,
    read_calls,
)
from stoker.dataset.streams.calls.task_calls import TaskCalls
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.failures import failure_origin
from stoker.dataset.streams.measure.statistics import Statistics
from stoker.dataset.tree.node import Context, number
from stoker.errors import PoisonedElementError

TASK = 7


class Run:
    """A dataset whose calls are recorded; `during(x)` is what its function calls.

    Attributes:
        seen: the calls in flight during each call of the function, by its element.
    """

    def __init__(self) -> None:
        self.memory = bytearray(RECORD_BYTES)
        self.recorder = CallRecorder(memoryview(self.memory))
        self.seen: dict[int, list[RecordedCall]] = {}
        self.statistics = Statistics()

    @property
    def calls(self) -> list[RecordedCall]:
        return read_calls(bytes(self.memory))

    def look(self, x: int) -> int:
        self.seen[int(x)] = self.calls
        return x

    def read(self, dataset: stoker.Dataset, **marks: Any) -> list[Any]:
        """Return elements and errors."""
        calls = TaskCalls(self.recorder, TASK, **marks)
        root = dataset.node
        context = Context(
            numbers=number(root), make_dataset=Dataset, calls=calls, statistics=self.statistics
        )
        stream = open_stream(root, context)
        found: list[Any] = []
        try:
            while True:
                try:
                    chunk = stream.next_chunk(64, 1 << 20)
                except Exception as error:
                    found.append(error)
                    continue
                if not chunk:
                    return found
                found += chunk
        finally:
            stream.close()
            assert self.calls == []

    def stream_at(self, x: int) -> int:
        """Return the stream of the call during which the function got `x`."""
        [call] = {each.calls.stream for each in self.seen[x]} - {UNPLACED}
        return call


@pytest.fixture
def run() -> Run:
    return Run()


KINDS: dict[str, Callable[[Run], stoker.Dataset]] = {
    "map": lambda run: Dataset.range(100).map(run.look),
    "map on threads": lambda run: Dataset.range(100).map(run.look, num_parallel_calls=4),
    "map and batch": lambda run: (
        Dataset.range(100).map(run.look, num_parallel_calls=4).batch(1).unbatch()
    ),
    "filter": lambda run: Dataset.range(100).filter(lambda x: run.look(x) >= 0),
    "scan": lambda run: Dataset.range(100).scan(0, lambda state, x: (state, run.look(x))),
    "take_while": lambda run: Dataset.range(100).take_while(lambda x: run.look(x) >= 0),
    "flat_map": lambda run: Dataset.range(100).flat_map(
        lambda x: Dataset.range(1).map(_add(run, x))
    ),
    "flat_map's function": lambda run: Dataset.range(100).flat_map(
        lambda x: Dataset.from_tensors(run.look(x))
    ),
    "interleave": lambda run: Dataset.range(100).interleave(
        lambda x: Dataset.from_tensors(run.look(x)), num_parallel_calls=2, cycle_length=2
    ),
    "group_by_window": lambda run: Dataset.range(100).group_by_window(
        lambda x: run.look(x) * 0, lambda key, group: group, window_size=1
    ),
}


def _add(run: Run, x: int) -> Callable[[int], int]:
    return lambda zero: run.look(x + zero)


@pytest.mark.parametrize("kind", KINDS)
def test_each_call_is_recorded_while_it_runs(run, kind):
    found = run.read(KINDS[kind](run))
    assert [int(x) for x in found] == list(range(100))
    assert sorted(run.seen) == list(range(100))
    for x, calls in run.seen.items():
        expected = 0 if kind == "flat_map" else x  # each dataset has a stream of its own
        assert any(call.calls.first <= expected < call.calls.stop for call in calls)
        assert {call.task_id for call in calls} == {TASK}
        assert all(call.digest == NO_DIGEST for call in calls)


@pytest.mark.parametrize("kind", KINDS)
def test_a_suspect_runs_alone_with_its_digest(run, kind):
    run.read(KINDS[kind](run))
    position = 0 if kind == "flat_map" else 50
    stream = run.stream_at(50)
    element: Any = (50,) if kind in ("flat_map's function", "interleave") else position
    suspect = CallRange(stream, position, position + 1)
    found = run.read(KINDS[kind](run), suspects=[suspect])
    assert [int(x) for x in found] == list(range(100))
    [call] = run.seen[50]
    assert call == RecordedCall(TASK, suspect, digest_of(element))


@pytest.mark.parametrize("kind", KINDS)
def test_a_poisoned_call_is_an_error_at_its_position(run, kind):
    run.read(KINDS[kind](run))
    position = 0 if kind == "flat_map" else 50
    element: Any = (50,) if kind in ("flat_map's function", "interleave") else position
    poisoned = PoisonedCall(run.stream_at(50), position, digest_of(element), "it was killed")
    run.seen.clear()
    found = run.read(KINDS[kind](run), poisoned=[poisoned])
    [error] = [x for x in found if isinstance(x, Exception)]
    assert isinstance(error, PoisonedElementError)
    assert 50 not in run.seen
    assert found.index(error) == 50
    assert [int(x) for x in found if x is not error] == [x for x in range(100) if x != 50]
    origin = failure_origin(error)
    assert origin is not None
    assert __file__.rsplit("/", 1)[-1] in origin.site


def test_traced_calls_are_recorded_one_by_one(run):
    dataset = Dataset.range(100).map(run.look)
    run.read(dataset)
    stream = run.stream_at(0)
    assert run.seen[0][0].calls.stop > 1
    run.read(dataset, traced=[CallRange(stream, 0, 30)])
    assert [run.seen[x] for x in range(30)] == [
        [RecordedCall(TASK, CallRange(stream, x, x + 1), NO_DIGEST)] for x in range(30)
    ]
    assert run.seen[30][0].calls.stop > 31


def test_another_element_at_a_poisoned_position_is_computed(run):
    dataset = Dataset.range(100).map(run.look)
    run.read(dataset)
    poisoned = PoisonedCall(run.stream_at(50), 50, digest_of(51), "it was killed")
    assert run.read(dataset, poisoned=[poisoned]) == list(range(100))


def test_positions_of_repeated_epochs_differ(run):
    dataset = Dataset.range(3).map(run.look).repeat(2)
    run.read(dataset)
    poisoned = PoisonedCall(run.stream_at(1), 1, digest_of(1), "it was killed")
    found = run.read(dataset, poisoned=[poisoned])
    assert [x if isinstance(x, int) else "error" for x in found] == [0, 1, 2, 0, "error", 2]


def test_a_batch_fails_with_its_poisoned_element(run):
    dataset = Dataset.range(6).map(run.look, num_parallel_calls=2).batch(2)
    run.read(dataset)
    poisoned = PoisonedCall(run.stream_at(2), 2, digest_of(2), "it was killed")
    first, error, last = run.read(dataset, poisoned=[poisoned])
    assert isinstance(error, PoisonedElementError)
    assert np.concatenate([first, last]).tolist() == [0, 1, 4, 5]


def test_ignore_errors_skips_and_counts_poisoned_elements(run):
    dataset = Dataset.range(6).map(run.look).ignore_errors()
    run.read(dataset)
    poisoned = PoisonedCall(run.stream_at(2), 2, digest_of(2), "it was killed")
    assert run.read(dataset, poisoned=[poisoned]) == [0, 1, 3, 4, 5]
    assert run.statistics.count("errors_ignored") == 1


def test_a_generator_is_recorded_without_a_position(run):
    def count():
        for x in range(3):
            yield run.look(x)

    assert run.read(Dataset.from_generator(count)) == [0, 1, 2]
    unplaced = RecordedCall(TASK, CallRange(UNPLACED, 0, 1), NO_DIGEST)
    assert list(run.seen.values()) == [[unplaced]] * 3


def test_a_suspect_waits_for_the_generator_and_stops_it(run):
    """A crash of the generator must not accuse the element that is computed at that time."""

    def count():
        yield from range(40)

    dataset = Dataset.from_generator(count).map(run.look, num_parallel_calls=4)
    run.read(dataset)
    stream = run.stream_at(0)
    run.read(dataset, suspects=[CallRange(stream, 0, 40)])
    assert [len(calls) for calls in run.seen.values()] == [1] * 40


def test_suspects_that_wait_for_each_other_are_computed(run, monkeypatch):
    for limit in ("ALONE_SECONDS", "QUIET_SECONDS"):
        monkeypatch.setattr(call_recorder, limit, 0.05)
    meeting = threading.Barrier(2)

    def meet(x: int) -> int:
        meeting.wait(10)
        return run.look(x)

    dataset = Dataset.range(20).map(meet, num_parallel_calls=2)
    run.read(dataset)
    stream = run.stream_at(0)
    assert run.read(dataset, suspects=[CallRange(stream, 0, 4)]) == list(range(20))
