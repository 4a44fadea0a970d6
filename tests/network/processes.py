"""Servers and trainers on the hosts of a `Network`."""

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.network.namespaces import Host, Network
from tests.network.trainer import Result

ROOT = Path(__file__).parents[2]

DEADLINE = 40.0
"""Default deadline in seconds: many times what any of them needs."""

PORT = 5050

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Process:
    """A process on a host, whose output is in a file."""

    def __init__(self, host: Host, words: Sequence[str], output: Path) -> None:
        self._path = output
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                host.command([sys.executable, *words]),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path},
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - no other thread holds a lock here
            )

    @property
    def output(self) -> str:
        return self._path.read_text(errors="replace")

    def wait_for(self, pattern: str, deadline: float = DEADLINE) -> re.Match[str]:
        """Wait until the output matches `pattern`, and return the match."""
        end = time.monotonic() + deadline
        tick = threading.Event()
        while True:
            ended = self._process.poll() is not None
            if match := re.search(pattern, self.output):
                return match
            assert not ended, f"ended without {pattern!r}:\n{self.output}"
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.output}"
            tick.wait(0.01)

    def wait(self, deadline: float = DEADLINE) -> int:
        """Wait until the process ends, and return its status."""
        return self._process.wait(deadline)

    def stop(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Service(contextlib.ExitStack):
    """A dispatcher, workers and trainers on hosts; leaving the context stops all of them.

    Args:
        network: of the hosts; it must outlive the service.
        directory: for the output of the processes.
    """

    def __init__(self, network: Network, directory: Path) -> None:
        super().__init__()
        self.network = network
        self._directory = directory

    def dispatcher(self, host: Host, /, **fields: Any) -> Process:
        """Start a dispatcher, which listens on all interfaces, and wait until it serves."""
        return _serving(self._start_server("dispatcher", host, {"port": PORT, **fields}))

    def worker(self, host: Host, dispatcher: str, /, **fields: Any) -> Process:
        """Start a worker, which listens on all interfaces, and wait until it serves."""
        return self.workers([host], dispatcher, **fields)[0]

    def workers(self, hosts: Sequence[Host], dispatcher: str, /, **fields: Any) -> list[Process]:
        """Start workers at the same time; see `worker`."""
        fields = {"dispatcher_address": dispatcher, **fields}
        return [*map(_serving, [self._start_server("worker", host, fields) for host in hosts])]

    def command(self, host: Host, *words: str) -> Process:
        """Start a `stoker` command on a host."""
        return self.start(host, "-m", "stoker", *words)

    def trainer(self, host: Host, dispatcher: str, **options: Any) -> Process:
        """Start a trainer; `options` are fields of `trainer.Options`."""
        options = {"dispatcher": dispatcher, **options}
        return self.start(host, "-m", "tests.network.trainer", json.dumps(options))

    def start(self, host: Host, *words: str) -> Process:
        """Start a Python process on a host."""
        output = self._directory / f"{host.name}-{len(list(self._directory.iterdir()))}"
        process = Process(host, words, output)
        self.callback(process.stop)
        return process

    def _start_server(self, kind: str, host: Host, fields: dict[str, Any]) -> Process:
        fields = {"host": "0.0.0.0", "insecure": True, "peer_timeout_ms": 2_000, **fields}
        return self.start(host, "-m", "tests.network.server", kind, json.dumps(fields))


def _die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends, also by SIGKILL."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _serving(process: Process) -> Process:
    process.wait_for(r"(?m)^serves at \S+$")
    return process


def result_of(trainer: Process, deadline: float = DEADLINE) -> Result:
    """Wait until a trainer has read its epoch, and return its result."""
    found = trainer.wait_for(r"(?m)^result (.*)$", deadline)
    return Result(**json.loads(found[1]))
