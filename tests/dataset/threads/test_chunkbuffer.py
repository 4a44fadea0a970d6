"""The buffer of chunks that reading ahead fills."""

import pytest

from stoker.dataset.streams.failures import Failure
from stoker.dataset.threads.chunkbuffer import ChunkBuffer


def test_elements_come_in_order_and_never_across_a_chunk() -> None:
    buffer = ChunkBuffer(10, 1000)
    buffer.put([1, 2, 3])
    buffer.put([4])
    assert buffer.take(2, 1000) == [1, 2]
    assert buffer.take(9, 1000) == [3]
    assert buffer.take(9, 1000) == [4]
    assert buffer.take(9, 1000) == []
    assert not buffer


def test_a_failure_is_never_in_a_chunk_with_elements() -> None:
    buffer = ChunkBuffer(10, 1000)
    buffer.put([1])
    buffer.put([Failure(LookupError("here"))])
    buffer.put([2])
    assert not buffer.fails_next()
    assert buffer.take(9, 1000) == [1]
    assert buffer.fails_next()
    with pytest.raises(LookupError, match="here"):
        buffer.take(9, 1000)
    assert buffer.take(9, 1000) == [2]


def test_bytes_bound_a_chunk_but_one_element_always_fits() -> None:
    buffer = ChunkBuffer(10, 1000)
    buffer.put([b"x" * 68] * 4)
    assert buffer.unit == 100
    assert len(buffer.take(9, 250)) == 2
    assert len(buffer.take(9, 1)) == 1


def test_room_is_bounded_by_elements_and_by_bytes() -> None:
    buffer = ChunkBuffer(6, 1000)
    assert (buffer.room(), buffer.half_empty()) == (6, True)
    buffer.put([1, 2, 3, 4])
    assert (buffer.room(), buffer.half_empty()) == (2, False)
    assert buffer.drop(1) == 1
    assert (buffer.room(), buffer.half_empty()) == (3, True)
    buffer.put([b"x" * 500])
    assert (buffer.room(), buffer.half_empty()) == (0, False)
    buffer.clear()
    assert buffer.room() == 6


def test_dropping_counts_failures() -> None:
    buffer = ChunkBuffer(10, 1000)
    buffer.put([1, 2])
    buffer.put([Failure(LookupError())])
    buffer.put([3, 4])
    assert buffer.drop(4) == 4
    assert buffer.take(9, 1000) == [4]
    assert buffer.drop(4) == 0
