import os
import signal
import threading

import pytest

from stoker.service.shutdown import StopRequest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_though_it_came_before(number):
    with StopRequest() as request:
        os.kill(os.getpid(), number)
        request.wait()


def test_another_thread_may_ask():
    with StopRequest() as request:
        thread = threading.Thread(target=request.ask)
        thread.start()
        request.wait()
        thread.join()


def test_asking_more_often_than_the_pipe_holds_does_not_block():
    with StopRequest() as request:
        for _ in range(100_000):
            request.ask()
        request.wait()


def test_the_handlers_from_before_are_restored():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with StopRequest():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
