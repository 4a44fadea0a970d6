"""Queues of chunks: order, sizes, and chunks put back."""

import time

from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import ErrorRecord
from stoker.service.chunk import Chunk
from stoker.service.worker.buffers.chunk_queue import ChunkQueue

ERROR = ErrorRecord("UserFunctionError", "no")


def _filled(*chunks: Chunk) -> ChunkQueue:
    queue = ChunkQueue()
    for chunk in chunks:
        queue.put(chunk)
    return queue


def test_small_chunks_are_merged():
    queue = _filled(Chunk([1], 10), Chunk([2, 3], 20))
    assert queue.take(100, 100) == Chunk([1, 2, 3], 30)
    assert (queue.positions, queue.nbytes) == (0, 0)


def test_large_chunk_is_split():
    queue = _filled(Chunk([1, 2, 3, 4], 40))
    assert queue.take(1, 100) == Chunk([1], 10)
    assert queue.take(100, 25) == Chunk([2, 3], 20)
    assert (queue.positions, queue.nbytes) == (1, 10)


def test_element_larger_than_the_limit_is_returned_alone():
    queue = _filled(Chunk([1, 2], 2000))
    assert queue.take(10, 1) == Chunk([1], 1000)


def test_error_is_returned_alone_in_its_position():
    queue = _filled(Chunk([1], 1), Chunk([], 5, ERROR), Chunk([2], 1))
    taken = [queue.take(10, 100) for _ in range(3)]
    assert taken == [Chunk([1], 1), Chunk([], 5, ERROR), Chunk([2], 1)]


def test_chunks_put_back_come_first_even_amid_a_chunk():
    queue = _filled(Chunk([1, 2, 3], 30))
    first = queue.take(2, 100)
    queue.put_back([first, Chunk([], 5, ERROR)])
    assert (queue.positions, queue.nbytes) == (4, 35)
    assert queue.take(10, 100) == Chunk([1, 2], 20)
    assert queue.take(10, 100) == Chunk([], 5, ERROR)
    assert queue.take(10, 100) == Chunk([3], 10)


def test_empty_chunk_is_ignored():
    assert _filled(Chunk([], 0)).positions == 0


def test_parts_of_shared_chunks_stay_shared():
    queue = _filled(Chunk([1, 2], 2, shared=True), Chunk([3], 1, shared=True))
    assert queue.take(1, 100) == Chunk([1], 1, shared=True)
    assert queue.take(10, 100) == Chunk([2, 3], 2, shared=True)
    assert Chunk([1, 2], 2, shared=True).after(1) == Chunk([2], 1, shared=True)


@given(
    st.lists(st.integers(0, 9)),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 60), st.booleans())),
)
def test_order_and_sizes_hold_for_any_operations(sizes, takes):
    elements = iter(range(1000))
    queue = _filled(*[Chunk([next(elements) for _ in range(n)], 7 * n) for n in sizes])
    got: list[int] = []
    for most, nbytes, back in takes:
        if queue.positions:
            chunk = queue.take(most, nbytes)
            assert 1 <= len(chunk.elements) <= most
            if back:
                queue.put_back([chunk])
            else:
                got += chunk.elements
    rest = [x for chunk in queue.drain() for x in chunk.elements]
    assert got + rest == list(range(sum(sizes)))
    assert (queue.positions, queue.nbytes) == (0, 0)


def test_taking_single_elements_is_linear():
    def seconds(count: int) -> float:
        queue = _filled(Chunk(list(range(count)), count))
        began = time.perf_counter()
        for _ in range(count):
            queue.take(1, 1 << 20)
        return time.perf_counter() - began

    # Quadratic would be 256 times as long; the bound leaves room for a busy machine.
    assert seconds(160_000) < 100 * max(seconds(10_000), 0.005)
