"""The process's thread pool and its leases."""

import os
import threading
import time
from collections.abc import Callable

import pytest

from stoker.dataset.threads import pool

SECONDS = 20.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        threading.Event().wait(0.001)


def meet(barrier: threading.Barrier) -> Callable[[], None]:
    def call() -> None:
        barrier.wait(SECONDS)

    return call


def pool_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("stoker-pool-")]


def test_all_calls_of_a_lease_run_concurrently() -> None:
    lease = pool.lease(16)
    barrier = threading.Barrier(17)
    lease.submit([meet(barrier)] * 16)
    barrier.wait(SECONDS)
    lease.release()


def test_concurrent_calls_do_not_exceed_the_lease() -> None:
    lock = threading.Lock()
    running, most, done = 0, 0, threading.Semaphore(0)

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.0005)
        with lock:
            running -= 1
        done.release()

    wide, narrow = pool.lease(8), pool.lease(2)
    narrow.submit([call] * 50)
    for _ in range(50):
        narrow.help(lambda _: True)
        assert done.acquire(timeout=SECONDS)
    narrow.release()
    wide.release()
    assert most == 2


def test_a_lease_can_be_made_wider_and_narrower() -> None:
    lease = pool.lease(1)
    barrier = threading.Barrier(7)
    lease.submit([meet(barrier)] * 6)
    lease.resize(6)
    barrier.wait(SECONDS)
    assert len(pool_threads()) == 6
    lease.resize(2)
    wait_until(lambda: len(pool_threads()) == 2)
    gate, begun = threading.Event(), threading.Semaphore(0)

    def occupy() -> None:
        begun.release()
        gate.wait(SECONDS)

    lease.submit([occupy] * 4)
    assert begun.acquire(timeout=SECONDS)
    assert begun.acquire(timeout=SECONDS)
    assert not begun.acquire(timeout=0.02)
    gate.set()
    assert begun.acquire(timeout=SECONDS)
    lease.release()
    lease.resize(9)
    wait_until(lambda: not pool_threads())


def test_calls_begin_in_the_order_they_were_submitted() -> None:
    lease = pool.lease(1)
    begun: list[int] = []
    finished = threading.Event()
    lease.submit([lambda i=i: begun.append(i) for i in range(100)])  # type: ignore[misc]
    lease.submit([finished.set])
    assert finished.wait(SECONDS)
    lease.release()
    assert begun == list(range(100))


def test_a_call_no_thread_takes_is_run_by_the_waiting_thread() -> None:
    lease = pool.lease(2)
    gate = threading.Event()
    begun = threading.Semaphore(0)

    def occupy() -> None:
        begun.release()
        gate.wait(SECONDS)

    lease.submit([occupy, occupy])
    assert begun.acquire(timeout=SECONDS)
    assert begun.acquire(timeout=SECONDS)
    other = pool.lease(2)
    ran: list[str] = []
    other.submit([lambda: ran.append(threading.current_thread().name)])
    assert not other.help(lambda _: False)
    assert other.help(lambda _: True)
    assert ran == [threading.current_thread().name]
    gate.set()
    lease.release()
    other.release()


def test_the_pool_grows_to_the_largest_lease() -> None:
    small, large = pool.lease(1), pool.lease(5)
    barrier = threading.Barrier(6)
    large.submit([meet(barrier)] * 5)
    barrier.wait(SECONDS)
    assert len(pool_threads()) == 5
    assert all(thread.daemon for thread in pool_threads())
    large.release()
    wait_until(lambda: len(pool_threads()) <= 1)
    small.release()
    wait_until(lambda: not pool_threads())


def test_the_last_release_leaves_no_idle_thread() -> None:
    before = set(pool_threads())
    lease = pool.lease(3)
    barrier = threading.Barrier(4)
    lease.submit([meet(barrier)] * 3)
    barrier.wait(SECONDS)
    wait_until(lambda: lease.running == 0)
    lease.release()
    lease.release()
    assert set(pool_threads()) == before


def test_release_does_not_wait_for_a_running_call() -> None:
    lease = pool.lease(1)
    begun, gate = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        gate.wait(SECONDS)

    never: list[int] = []
    lease.submit([call, lambda: never.append(1)])
    assert begun.wait(SECONDS)
    lease.release()
    assert not gate.is_set()
    gate.set()
    wait_until(lambda: not pool_threads())
    assert never == []


def test_pool_threads_know_that_they_are() -> None:
    assert not pool.in_pool_thread()
    lease = pool.lease(1)
    seen: list[bool] = []
    done = threading.Event()
    lease.submit([lambda: seen.append(pool.in_pool_thread()), done.set])
    assert done.wait(SECONDS)
    lease.release()
    assert seen == [True]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork with threads is under test
def test_a_forked_child_has_a_separate_pool() -> None:
    lease = pool.lease(2)
    ran = threading.Event()
    lease.submit([ran.set])
    assert ran.wait(SECONDS)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            lease.release()  # the parent's: must not touch its locks
            mine = pool.lease(1)
            done = threading.Event()
            mine.submit([done.set])
            code = 0 if done.wait(SECONDS) else 2
            mine.release()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    lease.release()
    assert os.waitstatus_to_exitcode(status) == 0
