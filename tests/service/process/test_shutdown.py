import os
import signal
import threading
import time

import pytest

from stoker.service.process.shutdown import StopRequest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_earlier_signal_ends_the_wait(number):
    with StopRequest() as request:
        os.kill(os.getpid(), number)
        request.wait()


def test_signal_delivered_to_another_thread_ends_the_wait():
    def receive() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with StopRequest() as request:
        timer = threading.Timer(0.1, receive)
        timer.start()
        request.wait()
        timer.join()


def test_one_signal_is_one_request():
    with StopRequest() as request:
        os.kill(os.getpid(), signal.SIGTERM)
        request.wait()
        timer = threading.Timer(0.1, request.ask)
        timer.start()
        began = time.monotonic()
        request.wait()
        assert time.monotonic() - began > 0.05
        timer.join()


def test_other_signals_do_not_end_the_wait():
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with StopRequest() as request:
            os.kill(os.getpid(), signal.SIGUSR1)
            timer = threading.Timer(0.1, request.ask)
            timer.start()
            began = time.monotonic()
            request.wait()
            assert time.monotonic() - began > 0.05
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_another_thread_may_ask():
    with StopRequest() as request:
        thread = threading.Thread(target=request.ask)
        thread.start()
        request.wait()
        thread.join()


def test_requests_beyond_the_pipe_capacity_do_not_block():
    with StopRequest() as request:
        for _ in range(100_000):
            request.ask()
        request.wait()


def test_previous_handlers_are_restored():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with StopRequest():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
