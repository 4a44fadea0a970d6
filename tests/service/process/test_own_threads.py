"""Closing on a thread of stoker: a finalizer runs on the thread that collects the garbage."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import stoker
from stoker.service import DispatchServer, WorkerServer
from stoker.service.control.control_loop import holding_control_loop
from tests.serving import eventually


@contextlib.contextmanager
def _dispatcher() -> Iterator[Callable[[], None]]:
    with DispatchServer() as dispatcher:
        yield dispatcher.stop
        dispatcher.join()


@contextlib.contextmanager
def _worker() -> Iterator[Callable[[], None]]:
    with (
        DispatchServer() as dispatcher,
        WorkerServer(dispatcher_address=dispatcher.target) as worker,
    ):
        yield worker.stop
        worker.join()
        assert dispatcher.num_workers() == 0


@contextlib.contextmanager
def _cluster() -> Iterator[Callable[[], None]]:
    with stoker.LocalCluster(1, threads=True) as cluster:
        yield cluster.stop
        assert eventually(lambda: cluster._servers.dispatcher._state == "stopped")


@pytest.mark.parametrize("running", [_dispatcher, _worker, _cluster])
def test_a_server_may_be_stopped_on_the_control_loop(running):
    with running() as stop, holding_control_loop() as loop:
        returned = threading.Event()
        loop.call_soon_threadsafe(stop)
        loop.call_soon_threadsafe(returned.set)
        assert returned.wait(5)


def test_a_server_may_be_stopped_while_the_interpreter_exits():
    code = """
import builtins, stoker.service
class Owner:
    def __init__(self):
        self.dispatcher = stoker.service.DispatchServer()
        self.worker = stoker.service.WorkerServer(dispatcher_address=self.dispatcher.target)
    def __del__(self):
        self.worker.stop()
        self.dispatcher.stop()
builtins.owner = Owner()
print("began")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25)
    assert (found.stdout, found.returncode) == ("began\n", 0)
