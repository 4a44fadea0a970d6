"""What waits for readers: order, sizes, and what comes back."""

import time

from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import ErrorRecord
from stoker.service.chunk import Chunk
from stoker.service.worker.chunk_queue import ChunkQueue

ERROR = ErrorRecord("UserFunctionError", "no")


def _filled(*chunks: Chunk) -> ChunkQueue:
    queue = ChunkQueue()
    for chunk in chunks:
        queue.put(chunk)
    return queue


def test_small_pieces_are_taken_together():
    queue = _filled(Chunk([1], 10), Chunk([2, 3], 20))
    assert queue.take(100, 100) == Chunk([1, 2, 3], 30)
    assert (queue.positions, queue.nbytes) == (0, 0)


def test_a_large_piece_is_taken_in_parts():
    queue = _filled(Chunk([1, 2, 3, 4], 40))
    assert queue.take(1, 100) == Chunk([1], 10)
    assert queue.take(100, 25) == Chunk([2, 3], 20)
    assert (queue.positions, queue.nbytes) == (1, 10)


def test_one_element_is_taken_however_large():
    queue = _filled(Chunk([1, 2], 2000))
    assert queue.take(10, 1) == Chunk([1], 1000)


def test_an_error_comes_alone_and_in_its_place():
    queue = _filled(Chunk([1], 1), Chunk([], 5, ERROR), Chunk([2], 1))
    taken = [queue.take(10, 100) for _ in range(3)]
    assert taken == [Chunk([1], 1), Chunk([], 5, ERROR), Chunk([2], 1)]


def test_what_is_given_back_is_taken_first_even_amid_a_piece():
    queue = _filled(Chunk([1, 2, 3], 30))
    first = queue.take(2, 100)
    queue.put_back([first, Chunk([], 5, ERROR)])
    assert (queue.positions, queue.nbytes) == (4, 35)
    assert queue.take(10, 100) == Chunk([1, 2], 20)
    assert queue.take(10, 100) == Chunk([], 5, ERROR)
    assert queue.take(10, 100) == Chunk([3], 10)


def test_an_empty_piece_is_nothing():
    assert _filled(Chunk([], 0)).positions == 0


def test_a_chunk_of_shared_elements_stays_shared():
    queue = _filled(Chunk([1, 2], 2, shared=True), Chunk([3], 1, shared=True))
    assert queue.take(1, 100) == Chunk([1], 1, shared=True)
    assert queue.take(10, 100) == Chunk([2, 3], 2, shared=True)
    assert Chunk([1, 2], 2, shared=True).after(1) == Chunk([2], 1, shared=True)


@given(
    st.lists(st.integers(0, 9)),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 60), st.booleans())),
)
def test_order_and_counts_hold_for_any_takes_and_returns(sizes, takes):
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


def test_taking_one_by_one_costs_the_same_for_each():
    def seconds(count: int) -> float:
        queue = _filled(Chunk(list(range(count)), count))
        began = time.perf_counter()
        for _ in range(count):
            queue.take(1, 1 << 20)
        return time.perf_counter() - began

    # Quadratic would be 256 times as long; the bound leaves room for a busy machine.
    assert seconds(160_000) < 100 * max(seconds(10_000), 0.005)
