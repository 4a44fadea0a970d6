"""Pollers: few threads for many descriptors, and consumers that handle their own events."""

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from stoker.errors import UnavailableError
from stoker.wire.transports.poller import Poller
from tests.wire.pairs import meets

DEADLINE = 10.0


def _descriptors() -> set[str]:
    return (
        {link.name for link in Path("/proc/self/fd").iterdir()}
        if sys.platform == "linux"
        else set()
    )


def _open_epolls() -> int:
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the directory's own
            count += "eventpoll" in str(link.readlink())
    return count


linux = pytest.mark.skipif(sys.platform != "linux", reason="the order of waking is Linux's")


@pytest.fixture
def poller():
    poller = Poller("test-poll")
    yield poller
    poller.close()


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_one_thread_serves_many_descriptors(poller):
    pairs = [socket.socketpair() for _ in range(200)]
    handled: queue.Queue[tuple[int, int]] = queue.Queue()
    before = threading.active_count()
    for number, (_, far) in enumerate(pairs):

        def ready(limit: int, number: int = number) -> None:
            handled.put((number, threading.get_ident()))

        poller.watch(far.fileno(), ready)
    for near, _ in pairs:
        near.send(b"x")
    found = [handled.get(timeout=DEADLINE) for _ in pairs]
    assert sorted(number for number, _ in found) == list(range(200))
    assert len({thread for _, thread in found}) == 1
    assert threading.active_count() == before
    for near, far in pairs:
        poller.forget(far.fileno())
        near.close()
        far.close()


def test_a_descriptor_is_reported_once_for_each_watch(poller, pair):
    near, far = pair
    handled: queue.Queue[int] = queue.Queue()
    poller.watch(far.fileno(), handled.put)
    near.send(b"x")
    handled.get(timeout=DEADLINE)
    near.send(b"x")
    with pytest.raises(queue.Empty):
        handled.get(timeout=0.05)
    poller.watch(far.fileno(), handled.put)
    handled.get(timeout=DEADLINE)
    poller.forget(far.fileno())


def test_room_is_reported_only_if_requested(poller, pair):
    _, far = pair
    handled: queue.Queue[int] = queue.Queue()
    poller.watch(far.fileno(), handled.put)
    with pytest.raises(queue.Empty):
        handled.get(timeout=0.05)
    poller.watch(far.fileno(), handled.put, writable=True)
    handled.get(timeout=DEADLINE)
    poller.forget(far.fileno())


@linux
def test_a_thread_in_poll_handles_what_arrives(poller, pair):
    near, far = pair
    threads: list[int] = []

    def ready(limit: int) -> None:
        far.recv(1)
        threads.append(threading.get_ident())

    for _ in range(20):
        poller.watch(far.fileno(), ready)
        timer = threading.Timer(0.01, near.send, (b"x",))
        timer.start()
        poller.poll(DEADLINE)
        timer.join()
    assert threads.count(threading.get_ident()) > 10  # not all, if it came too late to wait
    poller.forget(far.fileno())


def test_poll_returns_after_its_timeout(poller):
    began = time.monotonic()
    poller.poll(0.02)
    assert 0.02 <= time.monotonic() - began < DEADLINE


def test_wake_ends_a_poll_that_waits_and_the_next_one(poller):
    poller.wake()
    poller.poll(1000)
    timers = [threading.Timer(0.001 * n, poller.wake) for n in range(1, 21)]
    for timer in timers:
        timer.start()
        poller.poll(1000)
        timer.join()


def test_wakes_are_not_lost_beside_a_background_thread_that_handles(poller, pair):
    near, far = pair
    count = [0]

    def ready(limit: int) -> None:
        far.recv(1)
        count[0] += 1
        poller.watch(far.fileno(), ready)
        poller.wake()

    poller.watch(far.fileno(), ready)
    for number in range(500):
        near.send(b"x")
        while count[0] <= number:
            poller.poll(1000)
    poller.forget(far.fileno())


def test_an_interrupted_handler_is_called_again(poller, pair):
    near, far = pair
    calls: list[int] = []

    def ready(limit: int) -> None:
        calls.append(threading.get_ident())
        if len(calls) == 1:
            raise KeyboardInterrupt

    near.send(b"x")
    # Only a thread in `poll` can be interrupted.
    poller._polled.append([(far.fileno(), 0)])
    poller._ready[far.fileno()] = ready
    with pytest.raises(KeyboardInterrupt):
        poller.poll(DEADLINE)
    poller.poll(DEADLINE)
    assert calls == [threading.get_ident()] * 2
    del poller._ready[far.fileno()]


def test_calls_run_on_threads_that_poll(poller):
    handled: queue.Queue[int] = queue.Queue()
    for _ in range(50):
        poller.call(lambda limit: handled.put(threading.get_ident()))
    found = {handled.get(timeout=DEADLINE) for _ in range(50)}
    assert threading.get_ident() not in found


def test_an_exception_of_a_handler_is_logged_and_the_thread_goes_on(poller, caplog):
    def fail(limit: int) -> None:
        raise ValueError("planted")

    handled: queue.Queue[int] = queue.Queue()
    poller.call(fail)
    poller.call(handled.put)
    handled.get(timeout=DEADLINE)
    assert "ValueError: planted" in caplog.text


def test_close_wakes_every_thread_and_releases_all():
    before = _descriptors()
    poller = Poller("test-poll", 3)
    waiting = threading.Thread(target=poller.poll, args=(1000,))
    waiting.start()
    assert meets(lambda: poller._waiting == 1)
    poller.close()
    poller.close()
    waiting.join(DEADLINE)
    assert not waiting.is_alive()
    assert not any(thread.name == "test-poll" for thread in threading.enumerate())
    poller.poll(1000)
    poller.watch(0, lambda limit: None)
    assert _descriptors() == before


def test_a_handler_may_close_its_poller():
    poller = Poller("test-poll", 2)
    closed = threading.Event()

    def close(limit: int) -> None:
        poller.close()
        closed.set()

    poller.call(close)
    assert closed.wait(DEADLINE)
    assert meets(lambda: not any(x.name == "test-poll" for x in threading.enumerate()))


def test_a_thread_that_cannot_start_is_one_error(monkeypatch):
    def cannot_start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", cannot_start)
    with pytest.raises(UnavailableError, match="can't start new thread"):
        Poller("test-poll", 2)


@linux
def test_a_forked_child_has_no_part_in_the_parents_poller(poller, pair):
    near, far = pair
    handled: queue.Queue[int] = queue.Queue()
    poller.watch(far.fileno(), handled.put)
    assert _open_epolls() > 0
    child = os.fork()
    if child == 0:
        os._exit(_open_epolls())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    near.send(b"x")
    handled.get(timeout=DEADLINE)
    poller.forget(far.fileno())
