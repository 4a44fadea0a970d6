import os
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if sys.platform != "linux":
    pytest.skip("memfd is Linux's", allow_module_level=True)

from stoker.wire.transports.shm import segments as module
from stoker.wire.transports.shm.segments import PAGE, Loans, Segments
from stoker.wire.transports.shm.spans import Spans
from tests.wire.pairs import shared_mappings

MIB = 1 << 20


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.data())
def test_spans_never_overlap_and_are_all_there_in_the_end(sizes, data):
    spans = Spans(100)
    taken: dict[int, int] = {}
    for size in sizes:
        start = spans.take(size)
        if start is not None:
            span = set(range(start, start + size))
            assert span <= set(range(100))
            assert all(span.isdisjoint(range(a, a + n)) for a, n in taken.items())
            taken[start] = size
        assert spans.free == 100 - sum(taken.values())
        if taken and data.draw(st.booleans()):
            give = data.draw(st.sampled_from(sorted(taken)))
            spans.give(give, taken.pop(give))
    for start, size in taken.items():
        spans.give(start, size)
    assert spans.take(100) == 0


@pytest.fixture
def pool():
    pool = Segments(8 * MIB)
    yield pool
    pool.close()


def address(array):
    return array.__array_interface__["data"][0]


def lend(pool, loans, array):
    """The number of a loan of what `array` lies in; None if it cannot be lent in place."""
    loan = pool.lend_in_place(loans, address(array), array.nbytes)
    return None if loan is None else loan[0]


def test_an_array_is_aligned_writable_and_of_the_shape_asked_for(pool):
    array = pool.allocate((3, 100, 200), ">f8")
    assert (array.shape, array.dtype) == ((3, 100, 200), np.dtype(">f8"))
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert address(array) % PAGE == 0
    array[:] = 1
    assert pool.statistics()["viewed_bytes"] >= array.nbytes


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((10,), np.uint8), ((), np.float64), ((0, 5), np.int8), ((100_000,), object)],
)
def test_small_arrays_and_objects_are_ordinary(pool, shape, dtype):
    array = pool.allocate(shape, dtype)
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert pool.statistics()["bytes"] == 0


def test_memory_is_reused_only_after_its_last_view_is_freed(pool):
    array = pool.allocate((MIB,), np.uint8)
    where = address(array)
    part = array[5:][::7][3:4]
    del array
    assert address(pool.allocate((MIB,), np.uint8)) != where
    del part
    assert address(pool.allocate((MIB,), np.uint8)) == where


def test_allocate_uses_ordinary_memory_beyond_half_the_pool(pool):
    kept = [pool.allocate((MIB,), np.uint8) for _ in range(20)]
    assert pool.statistics()["viewed_bytes"] == 4 * MIB
    for n, array in enumerate(kept):
        array[:] = n
    assert [int(array[-1]) for array in kept] == list(range(20))


def test_what_is_larger_than_the_pool_is_ordinary(pool):
    assert pool.allocate((9 * MIB,), np.uint8).nbytes == 9 * MIB
    assert Segments(0).allocate((MIB,), np.uint8).nbytes == MIB
    assert pool.statistics()["bytes"] == 0


def test_a_block_is_reused_after_the_view_and_the_loan_ended(pool):
    loans = Loans()
    array = pool.allocate((MIB,), np.uint8)
    where, number = address(array), lend(pool, loans, array)
    del array
    assert address(pool.allocate((MIB,), np.uint8)) != where
    assert pool.statistics()["lent_bytes"] == MIB
    assert pool.return_loan(loans, number, leaked=False)
    assert address(pool.allocate((MIB,), np.uint8)) == where
    assert not pool.return_loan(loans, number, leaked=False)


def test_a_part_of_an_array_is_lent_in_place(pool):
    array = pool.allocate((1000, 1000), np.float32)
    assert lend(pool, Loans(), array[500:600]) == 1


def test_only_the_first_may_have_an_array_in_place(pool):
    first, second = Loans(), Loans()
    array = pool.allocate((MIB,), np.uint8)
    number = lend(pool, first, array)
    assert lend(pool, first, array) is None
    assert lend(pool, second, array) is None
    pool.return_loan(first, number, leaked=False)
    # The first may have written to it.
    assert lend(pool, second, array) is None


def test_ordinary_memory_is_never_lent_in_place(pool):
    own = pool.allocate((MIB,), np.uint8)
    assert lend(pool, Loans(), np.zeros(MIB, np.uint8)) is None
    beyond = np.lib.stride_tricks.as_strided(own, (own.nbytes + PAGE,), writeable=False)
    assert lend(pool, Loans(), beyond) is None


def test_what_a_client_never_gave_back_is_never_used_again(pool):
    loans = Loans()
    array = pool.allocate((MIB,), np.uint8)
    where = address(array)
    lend(pool, loans, array)
    pool.remove_client(loans)
    pool.remove_client(loans)
    del array
    assert pool.statistics()["retired_bytes"] == MIB
    kept = [pool.allocate((MIB,), np.uint8) for _ in range(4)]
    assert where not in map(address, kept)
    assert pool.lend_copy(loans, MIB) is None


def test_what_a_fork_may_see_is_retired_when_it_is_given_back(pool):
    loans = Loans()
    number, _ = pool.lend_copy(loans, MIB)
    pool.return_loan(loans, number, leaked=True)
    assert pool.statistics()["retired_bytes"] == MIB


def test_one_client_has_at_most_half_of_the_pool(pool):
    greedy, modest = Loans(), Loans()
    assert [pool.lend_copy(greedy, MIB) is None for _ in range(6)] == [False] * 4 + [True] * 2
    assert pool.lend_copy(modest, MIB) is not None


def test_retired_memory_is_replaced_when_there_is_no_other_room(pool):
    for _ in range(50):
        loans = Loans()
        assert pool.lend_copy(loans, MIB) is not None
        pool.remove_client(loans)
    statistics = pool.statistics()
    assert statistics["bytes"] == 8 * MIB
    assert statistics["lent_bytes"] == 0
    assert shared_mappings() == 4


def test_a_segment_in_use_is_emptied_before_it_is_replaced(pool):
    held = [pool.allocate((MIB,), np.uint8) for _ in range(3)]
    for _ in range(5):
        loans = Loans()
        pool.lend_copy(loans, MIB)
        pool.remove_client(loans)
    assert pool.statistics()["retired_bytes"] == 5 * MIB
    for n, array in enumerate(held):
        array[:] = n
    loans = Loans()
    lent = [pool.lend_copy(loans, MIB) for _ in range(4)]
    assert any(loan is not None for loan in lent)
    assert [int(array.max()) for array in held] == [0, 1, 2]


def test_unused_segments_are_released_without_clients(pool):
    pool.add_client()
    used, unused = (pool.allocate((2 * MIB,), np.uint8) for _ in range(2))
    del unused
    pool.release_unused()
    assert pool.statistics()["bytes"] == 4 * MIB
    pool.remove_client(Loans())
    pool.release_unused()
    assert pool.statistics()["bytes"] == 2 * MIB
    used[:] = 1
    del used
    pool.release_unused()
    assert pool.statistics()["bytes"] == 0
    assert pool.allocate((2 * MIB,), np.uint8).nbytes == 2 * MIB


def test_segments_of_other_sizes_make_room_for_a_larger_block(pool):
    array = pool.allocate((3 * MIB,), np.uint8)
    del array
    loans = Loans()
    number, block = pool.lend_copy(loans, 4 * MIB)
    assert block.memory.nbytes == 4 * MIB
    assert pool.return_loan(loans, number, leaked=False)


def test_no_memory_at_all_is_said_once_and_copies_are_made(pool, monkeypatch, caplog):
    def no_memory(size):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(module, "new_mapping", no_memory)
    for _ in range(3):
        assert pool.allocate((MIB,), np.uint8).nbytes == MIB
    assert pool.lend_copy(Loans(), MIB) is None
    assert caplog.text.count("no shared memory for elements") == 1


def test_a_closed_pool_unmaps_and_returns_ordinary_memory():
    pool = Segments(8 * MIB)
    array = pool.allocate((MIB,), np.uint8)
    array[:] = 7
    pool.close()
    pool.close()
    assert shared_mappings() == 1
    assert (array == 7).all()
    assert pool.allocate((MIB,), np.uint8).nbytes == MIB
    del array
    assert pool.statistics()["bytes"] == 0
    assert shared_mappings() == 0


def test_forked_parent_and_child_do_not_see_mutual_writes(pool):
    array = pool.allocate((MIB,), np.uint8)
    array[:] = 1
    child = os.fork()
    if not child:
        failed = 1
        try:
            array[:10] = 99
            mine = pool.allocate((MIB,), np.uint8)
            mine[:] = 5
            failed = 0 if (array[10:] == 1).all() and (array[:10] == 99).all() else 2
        finally:
            os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (array == 1).all()
    where = address(array)
    del array
    assert pool.statistics()["retired_bytes"] == MIB
    assert address(pool.allocate((MIB,), np.uint8)) != where


def test_what_nobody_viewed_at_a_fork_is_used_again(pool):
    where = address(pool.allocate((MIB,), np.uint8))
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert address(pool.allocate((MIB,), np.uint8)) == where
    assert pool.statistics()["retired_bytes"] == 0


class Model:
    """Everything somebody can see, with what it should hold."""

    def __init__(self):
        self.pool = Segments(24 * PAGE * 16)
        self.clients = [Loans(), Loans()]
        self.mark = 0
        self.own: dict[int, np.ndarray] = {}
        self.lent: dict[tuple[int, int], tuple[np.ndarray, int]] = {}
        self.kept: list[tuple[np.ndarray, int]] = []

    def next_mark(self):
        self.mark = self.mark % 250 + 1
        return self.mark

    def check(self):
        for mark, array in self.own.items():
            assert (array == mark).all()
        for memory, mark in [*self.lent.values(), *self.kept]:
            assert (memory == mark).all()
        statistics = self.pool.statistics()
        assert statistics["bytes"] <= statistics["max_bytes"]
        assert statistics["lent_bytes"] == sum(loans.bytes for loans in self.clients)


@settings(max_examples=60)
@given(st.data())
def test_nothing_that_somebody_sees_is_ever_overwritten(data):
    model = Model()
    pool, actions = model.pool, ["allocate", "drop", "copy", "in place", "give", "leak", "end"]
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(actions))
        client = data.draw(st.integers(0, 1))
        loans = model.clients[client]
        mine = sorted(number for c, number in model.lent if c == client)
        if action == "allocate" and len(model.own) < 50:
            mark = model.next_mark()
            array = pool.allocate((data.draw(st.integers(16, 80)) * PAGE,), np.uint8)
            array[:] = mark
            model.own[mark] = array
        elif action == "drop" and model.own:
            del model.own[data.draw(st.sampled_from(sorted(model.own)))]
        elif action == "copy":
            loan = pool.lend_copy(loans, data.draw(st.integers(1, 60)) * PAGE)
            if loan is not None:
                mark = model.next_mark()
                memory = loan[1].memory
                memory[:] = mark
                model.lent[client, loan[0]] = memory, mark
        elif action == "in place" and model.own:
            mark = data.draw(st.sampled_from(sorted(model.own)))
            number = lend(pool, loans, model.own[mark])
            if number is not None:
                model.lent[client, number] = loans.blocks[number].memory, mark
        elif action in ("give", "leak") and mine:
            number = data.draw(st.sampled_from(mine))
            visible = model.lent.pop((client, number))
            if action == "leak":
                model.kept.append(visible)
            assert pool.return_loan(loans, number, leaked=action == "leak")
        elif action == "end":
            model.kept += [model.lent.pop((client, number)) for number in mine]
            pool.remove_client(loans)
            model.clients[client] = Loans()
        model.check()
    pool.close()


def test_many_threads_allocate_lend_and_give_back_at_once():
    pool = Segments(16 * MIB)
    wrong: list[str] = []

    def work(mark):
        loans = Loans()
        for n in range(200):
            array = pool.allocate((64 * PAGE,), np.uint8)
            array[:] = mark
            number = lend(pool, loans, array)
            if not (array == mark).all():
                wrong.append(f"{mark} at {n}")
            del array
            if number is not None and not pool.return_loan(loans, number, leaked=False):
                wrong.append(f"{number} not lent")

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    statistics = pool.statistics()
    assert statistics["viewed_bytes"] == statistics["lent_bytes"] == 0
    assert statistics["retired_bytes"] == 0
    pool.close()


def test_concurrent_forks_and_new_segments_do_not_deadlock():
    done = threading.Event()

    def churn():
        while not done.is_set():
            pool = Segments(MIB)
            pool.allocate((MIB // 4,), np.uint8)[:] = 1
            pool.close()

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert shared_mappings() == 0
