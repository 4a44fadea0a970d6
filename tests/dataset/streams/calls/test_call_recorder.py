"""The record of calls in flight, and calls that run alone."""

import threading

import pytest

from stoker.dataset.streams.calls import call_recorder
from stoker.dataset.streams.calls.call_ranges import NO_DIGEST, UNPLACED, CallRange
from stoker.dataset.streams.calls.call_recorder import (
    RECORD_BYTES,
    CallRecorder,
    RecordedCall,
    read_calls,
)
from tests.serving import eventually

TASK, STREAM, DIGEST = 7, 3, 99


class _Memory:
    def __init__(self) -> None:
        self.bytes = bytearray(RECORD_BYTES)
        self.recorder = CallRecorder(memoryview(self.bytes))

    @property
    def calls(self) -> list[RecordedCall]:
        return read_calls(bytes(self.bytes))


@pytest.fixture
def memory() -> _Memory:
    return _Memory()


def _in_thread(function, *arguments) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    return thread


def test_calls_are_in_the_memory_until_they_end(memory):
    one = memory.recorder.begin(TASK, STREAM, 5, 9)
    two = memory.recorder.begin_unplaced(TASK)
    first = RecordedCall(TASK, CallRange(STREAM, 5, 9), NO_DIGEST)
    assert sorted(memory.calls) == [RecordedCall(TASK, CallRange(UNPLACED, 0, 1), 0), first]
    memory.recorder.end(two)
    assert memory.calls == [first]
    memory.recorder.end(one)
    assert memory.calls == []


def test_a_call_alone_waits_for_those_in_flight(memory):
    slot = memory.recorder.begin(TASK, STREAM, 0, 1)
    began = threading.Event()

    def run_alone():
        alone, quiet = memory.recorder.begin_alone(TASK, STREAM, 4, DIGEST)
        assert quiet
        began.set()
        memory.recorder.end(alone)

    thread = _in_thread(run_alone)
    assert eventually(lambda: memory.recorder._alone)
    assert not began.is_set()
    memory.recorder.end(slot)
    thread.join(10)
    assert began.is_set()


def test_other_calls_wait_for_one_that_runs_alone(memory):
    alone, quiet = memory.recorder.begin_alone(TASK, STREAM, 4, DIGEST)
    threads = [_in_thread(_call, memory.recorder) for _ in range(3)]
    assert eventually(lambda: len(memory.recorder._changed._waiters) == 3)
    assert quiet
    assert memory.calls == [RecordedCall(TASK, CallRange(STREAM, 4, 5), DIGEST)]
    memory.recorder.end(alone)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert memory.calls == []


def _call(recorder: CallRecorder) -> None:
    recorder.end(recorder.begin(TASK, STREAM, 0, 1))


def test_calls_that_run_alone_do_so_one_after_the_other(memory):
    most = 0
    guard = threading.Lock()
    inside: list[int] = []

    def run(index: int) -> None:
        nonlocal most
        for turn in range(20):
            alone = (index + turn) % 3 == 0
            if alone:
                slot, _ = memory.recorder.begin_alone(TASK, STREAM, index, DIGEST)
            else:
                slot = memory.recorder.begin(TASK, STREAM, index, index + 1)
            with guard:
                inside.append(index)
                if alone:
                    most = max(most, len(inside))
            with guard:
                inside.remove(index)
            memory.recorder.end(slot)

    threads = [_in_thread(run, index) for index in range(6)]
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert most == 1


def test_a_call_that_waits_for_others_runs_beside_them(memory, monkeypatch):
    monkeypatch.setattr(call_recorder, "QUIET_SECONDS", 0.05)
    other = memory.recorder.begin(TASK, STREAM, 0, 1)
    slot, quiet = memory.recorder.begin_alone(TASK, STREAM, 4, DIGEST)
    assert not quiet
    assert len(memory.calls) == 2
    thread = _in_thread(_call, memory.recorder)
    thread.join(10)
    assert not thread.is_alive()
    memory.recorder.end(slot)
    memory.recorder.end(other)


def test_others_do_not_wait_forever_for_a_call_alone(memory, monkeypatch):
    monkeypatch.setattr(call_recorder, "ALONE_SECONDS", 0.05)
    slot, _ = memory.recorder.begin_alone(TASK, STREAM, 4, DIGEST)
    thread = _in_thread(_call, memory.recorder)
    thread.join(10)
    assert not thread.is_alive()
    memory.recorder.end(slot)


def test_code_in_a_slot_may_call_functions_while_one_waits(memory):
    with memory.recorder.slot(memory.recorder.begin_unplaced(TASK)):
        thread = _in_thread(
            lambda: memory.recorder.end(memory.recorder.begin_alone(TASK, STREAM, 4, DIGEST)[0])
        )
        assert eventually(lambda: memory.recorder._alone)
        _call(memory.recorder)
    thread.join(10)
    assert not thread.is_alive()
