"""Buffers: the client that gets each element of a task."""

from typing import get_args

from stoker.errors import ErrorRecord
from stoker.service import messages as m
from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.buffer import MAX_ELEMENTS, Buffer, FirstCome
from stoker.service.worker.buffers.buffer_policies import new_buffer
from stoker.service.worker.buffers.round_robin import RoundRobin
from stoker.service.worker.buffers.sliding_window import SlidingWindow
from stoker.service.worker.wants.position_buffer import PositionBuffer

ANN, BOB = 41, 42


def _filled(*chunks: Chunk) -> Buffer:
    buffer = FirstCome()
    for chunk in chunks:
        buffer.put(chunk)
    return buffer


def test_every_policy_has_a_buffer():
    kinds: list[m.AnySharing] = [m.ByArrival(), m.ThroughCache(), m.InRounds(2)]
    modes: list[m.AnyTask] = [m.WholeTask(kind) for kind in kinds]
    modes.append(m.PositionTask(length=1))
    assert {type(mode.sharing) for mode in modes} == set(get_args(m.AnySharing))
    buffers = [new_buffer(mode) for mode in modes]
    expected = [FirstCome, SlidingWindow, RoundRobin, PositionBuffer]
    assert [type(buffer) for buffer in buffers] == expected
    assert not any(buffer.undelivered for buffer in buffers)


def test_first_come_gives_each_element_to_one_client():
    buffer = _filled(Chunk([1, 2, 3], 30))
    assert buffer.waiting(ANN) == buffer.waiting(BOB) == 3
    assert buffer.take(ANN, 2, 100) == Chunk([1, 2], 20)
    assert buffer.waiting(ANN) == 1
    assert buffer.take(BOB, 2, 100) == Chunk([3], 10)
    assert not buffer.undelivered


def test_what_a_client_gives_back_is_first_for_the_others():
    error = ErrorRecord("UserFunctionError", "no")
    buffer = _filled(Chunk([3], 10))
    buffer.give_back(ANN, [Chunk([1], 10), Chunk([], 5, error)])
    assert buffer.nbytes == 25
    assert [buffer.take(BOB, 10, 100) for _ in range(3)] == [
        Chunk([1], 10),
        Chunk([], 5, error),
        Chunk([3], 10),
    ]


def test_room_is_bounded_in_bytes_and_in_elements():
    assert _filled(Chunk([1], 99)).has_room(100)
    assert not _filled(Chunk([1], 100)).has_room(100)
    assert not _filled(Chunk([0] * MAX_ELEMENTS, 1)).has_room(100)


def test_without_a_limit_there_is_room_for_one_chunk():
    assert _filled().has_room(0)
    assert not _filled(Chunk([1], 1)).has_room(0)


def test_elements_of_a_lost_client_are_lost():
    error = ErrorRecord("UserFunctionError", "no")
    assert _filled().lose(ANN, [Chunk([1, 2], 20), Chunk([], 5, error)]) == 3
