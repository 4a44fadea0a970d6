import gc
import itertools
import threading
from collections import deque
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import WireError
from stoker.wire import buffers
from stoker.wire.buffers import POOLED_FROM_BYTES, BufferPool, lend

BIG = POOLED_FROM_BYTES


def address(view) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data


def lent(size=1 << 20):
    dead: deque[int] = deque()
    return lend(np.zeros(size, np.uint8), lambda: dead.append(1)), dead


VIEWS = [
    lambda array: array[1:][2:][3:4],
    lambda array: array.reshape(2, -1).T[::-2],
    lambda array: memoryview(array)[1:],
    lambda array: np.asarray(memoryview(memoryview(array)[1:])),
    lambda array: np.frombuffer(memoryview(array)[8:16], np.int64),
    lambda array: array.view(np.float32)[::3],
    lambda array: np.lib.stride_tricks.sliding_window_view(array[:100], 5),
    lambda array: np.ndarray((2, 3), np.uint8, array, 5),
    lambda array: iter(array.reshape(2, -1)),
    lambda array: [array[0:1].base],
    lambda array: np.broadcast_to(array[:3], (5, 3)),
]


@pytest.mark.parametrize("view_of", VIEWS)
def test_memory_is_lent_as_long_as_any_view_of_views_lives(view_of):
    memory, dead = lent()
    array = np.ndarray((1 << 19,), np.uint8, memory, 64)
    view = view_of(array)
    del memory, array
    gc.collect()
    assert not dead
    del view
    assert list(dead) == [1]


def test_a_copy_does_not_keep_memory_lent():
    memory, dead = lent()
    copy = np.frombuffer(memory, np.uint8)[3:9].copy()
    del memory
    assert dead
    assert copy.tolist() == [0] * 6


def test_a_cycle_gives_memory_back_inside_the_collector():
    memory, dead = lent()
    cycle: list = [np.frombuffer(memory, np.uint8)]
    cycle.append(cycle)
    del memory, cycle
    assert not dead
    gc.collect()
    assert list(dead) == [1]


class Phoenix:
    """Comes back from the garbage collector with what it holds."""

    risen: ClassVar[list] = []

    def __init__(self, view):
        self.view = view
        self.cycle = self

    def __del__(self):
        self.risen.append(self.view)


def test_what_rises_from_the_collector_is_still_lent():
    memory, dead = lent()
    Phoenix(np.frombuffer(memory, np.uint8))
    del memory
    gc.collect()
    assert len(Phoenix.risen) == 1
    assert not dead
    Phoenix.risen.clear()
    assert list(dead) == [1]


def test_the_last_view_may_die_on_any_thread():
    memory, dead = lent()
    held = [np.frombuffer(memory, np.uint8)[n:] for n in range(8)]
    del memory
    threads = [threading.Thread(target=held.pop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(dead) == [1]


def test_freed_memory_leaves_no_weak_references():
    before = len(buffers._watched)
    for _ in range(1000):
        lent(64)
    assert len(buffers._watched) == before


def test_a_buffer_is_reused_only_after_its_last_view_is_freed():
    pool = BufferPool(16 * BIG)
    first = pool.take(BIG)
    where = address(first)
    part = np.frombuffer(first, np.uint8)[5:][:3]
    del first
    second = pool.take(BIG)
    assert address(second) != where
    del part
    assert address(pool.take(BIG)) == where


def test_of_equal_buffers_the_last_used_is_given_first():
    pool = BufferPool(16 * BIG)
    taken = [pool.take(BIG) for _ in range(4)]
    places = [address(view) for view in taken]
    for n in (2, 0, 3, 1):
        taken[n] = memoryview(b"")
    assert address(pool.take(BIG)) == places[1]


def test_a_little_smaller_is_served_from_the_same_buffer():
    pool = BufferPool(64 * BIG)
    where = address(pool.take(10 * BIG))
    view = pool.take(9 * BIG + 1)
    assert view.nbytes == 9 * BIG + 1
    assert address(view) == where
    assert pool.statistics()["idle_bytes"] == 0


def test_a_much_larger_buffer_is_not_given_for_a_small_one():
    pool = BufferPool(64 * BIG)
    where = address(pool.take(30 * BIG))
    assert address(pool.take(2 * BIG)) != where


def test_a_full_pool_returns_ordinary_memory():
    pool = BufferPool(4 * BIG)
    kept = [pool.take(BIG) for _ in range(50)]
    assert len({address(view) for view in kept}) == 50
    assert pool.statistics() == {"bytes": 4 * BIG, "idle_bytes": 0}
    kept.clear()
    assert pool.statistics() == {"bytes": 4 * BIG, "idle_bytes": 4 * BIG}


def test_idle_buffers_of_other_sizes_make_room():
    pool = BufferPool(8 * BIG)
    kept = [pool.take(BIG) for _ in range(8)]
    kept.clear()
    large = pool.take(7 * BIG)
    assert pool.statistics() == {"bytes": 8 * BIG, "idle_bytes": BIG}
    assert large.nbytes == 7 * BIG


def test_what_is_small_or_larger_than_the_pool_is_not_pooled():
    pool = BufferPool(2 * BIG)
    assert [pool.take(size).nbytes for size in (0, 1, BIG - 1, 2 * BIG + 1)] == [
        0,
        1,
        BIG - 1,
        2 * BIG + 1,
    ]
    assert pool.statistics()["bytes"] == 0


def test_memory_there_was_not_enough_of_is_not_counted():
    pool = BufferPool(1 << 62)
    with pytest.raises(WireError, match="does not fit in memory here"):
        pool.take(1 << 61)
    assert pool.statistics()["bytes"] == 0


def test_buffers_outlive_their_pool():
    pool = BufferPool(4 * BIG)
    view = pool.take(BIG)
    del pool
    view[:] = b"x" * BIG
    assert bytes(view[-2:]) == b"xx"


@given(st.integers(0, 1 << 34))
def test_what_a_buffer_is_rounded_to_wastes_at_most_an_eighth(size):
    rounded = buffers._rounded(size)
    assert size <= rounded <= size + max(size // 8, 64)
    assert buffers._rounded(rounded) == rounded


@given(st.data())
def test_no_two_views_that_live_at_once_overlap(data):
    pool = BufferPool(10 * BIG)
    living: dict[int, memoryview] = {}
    sizes = st.integers(BIG - 5, 5 * BIG)
    for step in range(data.draw(st.integers(1, 30))):
        if living and data.draw(st.booleans()):
            del living[data.draw(st.sampled_from(sorted(living)))]
        else:
            living[step] = pool.take(data.draw(sizes))
        spans = sorted((address(view), address(view) + view.nbytes) for view in living.values())
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        assert all(start % 64 == 0 for start, _ in spans)
        assert pool.statistics()["bytes"] <= 10 * BIG


def test_many_threads_take_and_drop_at_once():
    pool = BufferPool(40 * BIG)
    wrong: list[int] = []

    def work(mark):
        for _ in range(200):
            view = pool.take(BIG + mark)
            array = np.frombuffer(view, np.uint8)
            array[:] = mark
            if not (array == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    statistics = pool.statistics()
    assert statistics["bytes"] == statistics["idle_bytes"] <= 8 * BIG
