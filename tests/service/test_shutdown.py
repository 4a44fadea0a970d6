import os
import signal
import threading

import pytest

from stoker.service.shutdown import StopRequest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_earlier_signal_ends_the_wait(number):
    with StopRequest() as request:
        os.kill(os.getpid(), number)
        request.wait()


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
