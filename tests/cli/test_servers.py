"""`stoker dispatcher` and `stoker worker` as a user runs them: processes and signals."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import stoker
from stoker.errors import FailedPreconditionError

pytestmark = pytest.mark.timeout(120)


class Command:
    """A `stoker ...` process whose output can be waited for."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stoker", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.said = ""

    def wait_for(self, pattern: str, deadline: float = 60.0) -> re.Match[str]:
        """The first match of `pattern` in what the process says."""
        end = time.monotonic() + deadline
        while (match := re.search(pattern, self.said)) is None:
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.said}"
            if select.select([self._output], [], [], 0.1)[0]:
                data = os.read(self._output.fileno(), 65536)
                assert data, f"ended without {pattern!r}:\n{self.said}"
                self.said += data.decode()
        return match

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """The exit status, once it ended; the rest of the output is in `said`."""
        try:
            self.said += self._process.communicate(timeout=30)[0].decode()
        finally:
            self._process.kill()
            self._process.communicate()
        return self._process.returncode


@contextlib.contextmanager
def running(*words: str) -> Iterator[Command]:
    command = Command(*words)
    try:
        yield command
    finally:
        command.send(signal.SIGTERM)
        command.end()


@contextlib.contextmanager
def a_dispatcher() -> Iterator[str]:
    with running("dispatcher", "--port", "0") as dispatcher:
        yield dispatcher.wait_for(r"dispatcher serves at grpc://(localhost:\d+)\n")[1]


def test_a_dispatcher_and_workers_started_by_command_serve_an_epoch():
    with a_dispatcher() as address, running("worker", "--dispatcher", address) as worker:
        worker.wait_for(r"worker 0 \(process \d+\) serves at \S+:\d+\n")
        dataset = stoker.Dataset.range(100).distribute(f"grpc://{address}")
        assert sorted(dataset) == list(range(100))


def test_workers_that_serve_by_grpc_are_read_by_clients_that_name_it():
    with (
        a_dispatcher() as address,
        running("worker", "--dispatcher", address, "--data-transfer-protocol", "grpc") as workers,
    ):
        workers.wait_for(r"serves at localhost:\d+")
        dataset = stoker.Dataset.range(100).distribute(address, data_transfer_protocol="grpc")
        assert sorted(dataset) == list(range(100))
        unnamed = stoker.Dataset.range(100).distribute(address)
        with pytest.raises(FailedPreconditionError, match="data_transfer_protocol='grpc'"):
            list(unnamed)


def test_a_transport_that_workers_cannot_be_told_to_serve_by_is_one_line():
    with running(
        "worker", "--dispatcher", "localhost:1", "--data-transfer-protocol", "pigeon"
    ) as command:
        assert command.end() == 1
    assert "no data transfer protocol 'pigeon' to serve; there are 'grpc', 'tcp'" in command.said


def test_a_killed_worker_process_is_named_and_replaced():
    with (
        a_dispatcher() as address,
        running("worker", "--dispatcher", address, "--processes", "2") as worker,
    ):
        pid = int(worker.wait_for(r"worker 0 \(process (\d+)\) serves at")[1])
        worker.wait_for(r"worker 1 \(process (\d+)\) serves at")
        os.kill(pid, signal.SIGKILL)
        worker.wait_for(
            rf"worker 0 \(process {pid}\) was killed by SIGKILL \(out of memory, or kill -9\)"
        )
        again = worker.wait_for(rf"worker 0 \(process (?!{pid}\b)(\d+)\) serves at")
        assert int(again[1]) != pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_servers_end_in_order_when_asked(number):
    with a_dispatcher() as address:
        worker = Command("worker", "--dispatcher", address)
        worker.wait_for("serves at")
        worker.send(number)
        assert worker.end() == 0
        assert "Traceback" not in worker.said
    dispatcher = Command("dispatcher", "--port", "0")
    dispatcher.wait_for("serves at")
    dispatcher.send(number)
    assert dispatcher.end() == 0
    assert "Traceback" not in dispatcher.said


@pytest.mark.parametrize("words", [["dispatcher"], ["worker", "--dispatcher", "localhost:5050"]])
def test_an_address_off_this_machine_needs_insecure(words):
    command = Command(*words, "--host", "0.0.0.0")
    assert command.end() == 1
    assert "insecure" in command.said
    assert "Traceback" not in command.said
    assert command.said.count("\n") == 1


def test_a_port_in_use_is_one_line_and_not_a_traceback():
    with a_dispatcher() as address:
        second = Command("dispatcher", "--port", address.rpartition(":")[2])
        assert second.end() == 1
        assert address.rpartition(":")[2] in second.said
        assert "Traceback" not in second.said
