"""The processes of a soak, which are killed and started again, and the links between them."""

import contextlib
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from stoker.service import messages as m
from stoker.service.control import rpc
from tests.faults.proxy import Forwarder
from tests.faults.soak.rules import Reading
from tests.faults.soak.trainer import Command, Outcome
from tests.serving import eventually

ROOT = Path(__file__).parents[3]

START_SECONDS = 180.0
"""Deadline of the start of a process: many times what it takes, since only a hang exceeds it."""

EPHEMERAL_PORTS = range(32768, 61000)
"""Ports that Linux gives to outgoing connections."""


class Child:
    """A process that can be started again after it has ended.

    Args:
        role: name of all its incarnations.
        words: of its command line after the interpreter's.
        log: file to which its standard error is appended.
        on_line: called with each line of its standard output, in a thread, and with b"" at the end.
    """

    def __init__(
        self, role: str, words: list[str], log: Path, on_line: Callable[[bytes], None]
    ) -> None:
        self.role = role
        self.words = words
        self._log = log
        self._on_line = on_line
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process id of the present incarnation; 0 before the first."""
        return self._process.pid if self._process is not None else 0

    @property
    def alive(self) -> bool:
        """True while it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def log_tail(self) -> str:
        """The last lines of its standard error."""
        return self._log.read_text(errors="replace")[-2000:]

    def start(self) -> None:
        """Start the process."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self.words],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._reading = threading.Thread(target=self._read, args=(self._process,))
        self._reading.start()

    def send(self, line: bytes) -> None:
        """Write a line to its standard input, unless it has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end, and return whether it came within `seconds`."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            self.wait(seconds)
        return not self.alive

    def wait(self, seconds: float) -> int:
        """Wait for its end and return the exit status, also when it is killed after `seconds`."""
        assert self._process is not None
        assert self._reading is not None
        assert self._process.stdin is not None
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reading.join()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        return status

    def kill(self) -> None:
        """Kill it with SIGKILL and wait for its end."""
        self.signal(signal.SIGKILL)
        self.wait(START_SECONDS)

    def end(self, seconds: float = 20.0) -> int:
        """End it by SIGTERM, or SIGKILL after `seconds`, and return the exit status."""
        if self._process is None:
            return 0
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._on_line(line)
        self._on_line(b"")


DISPATCHER = ("-m", "tests.faults.soak.server", "dispatcher")
WORKER = ("-m", "tests.faults.soak.server", "worker")
"""Command lines of servers, without the fields of their configurations."""


class Server(Child):
    """A dispatcher, or a supervisor with one worker.

    Args:
        words: of its command line, to which `fields` are appended as JSON.
        role: name of all its incarnations.
        fields: of its configuration.
        log: file of its standard error.
    """

    def __init__(self, words: Sequence[str], role: str, fields: dict[str, Any], log: Path) -> None:
        super().__init__(role, [*words, json.dumps(fields)], log, self._announced)
        self._serving: queue.Queue[bytes] = queue.Queue()

    def serve(self) -> dict[str, Any]:
        """Start the process and return the line that it prints when it serves.

        Raises:
            AssertionError: if it does not serve.
        """
        self._serving = queue.Queue()
        self.start()
        try:
            line = self._serving.get(timeout=START_SECONDS)
        except queue.Empty:
            line = b""
        if not line:
            raise AssertionError(f"{self.role} does not serve:\n{self.log_tail}")
        announced: dict[str, Any] = json.loads(line)
        return announced

    @property
    def worker_pid(self) -> int:
        """Process id of a supervisor's worker; 0 while it has none."""
        for child in _children(self.pid):
            with contextlib.suppress(OSError):
                is_server = b"fork_server" in Path(f"/proc/{child}/cmdline").read_bytes()
                return next(iter(_children(child)), 0) if is_server else child
        return 0

    def _announced(self, line: bytes) -> None:
        self._serving.put(line)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    return []


class WorkerMachine:
    """A supervisor with its worker, and the links by which it and trainers reach each other.

    Args:
        number: of the machine.
        directory: of its log.
        fields: of `WorkerConfig`.
        words: of the command line of its supervisor.
    """

    def __init__(
        self,
        number: int,
        directory: Path,
        fields: dict[str, Any],
        words: Sequence[str] = WORKER,
    ) -> None:
        port = unused_port()
        self.control, self.data = Forwarder(), Forwarder(port)
        fields = {
            "dispatcher_address": self.control.address,
            "worker_address": self.data.address,
            "port": port,
            **fields,
        }
        role = f"worker {number}"
        self.supervisor = Server(words, role, fields, directory / f"{role}.log")
        self.links = (self.control, self.data)

    def freeze(self) -> None:
        """Stop both processes by SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue both processes."""
        self._signal(signal.SIGCONT)

    def kill_worker(self) -> None:
        """Kill the worker, which its supervisor starts again."""
        if pid := self.supervisor.worker_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        self.supervisor.signal(number)
        if pid := self.supervisor.worker_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Trainer:
    """A trainer's process, which reads one epoch at a time.

    Args:
        role: its name.
        directory: of its log.

    Attributes:
        control: the link to the dispatcher.
        received: the number of elements received, in all epochs.
    """

    def __init__(self, role: str, directory: Path) -> None:
        self.control = Forwarder()
        self.received = 0
        words = ["-m", "tests.faults.soak.trainer"]
        self.process = Child(role, words, directory / f"{role}.log", self._on_line)
        self._reading = Reading()
        self._ended = threading.Event()

    def begin(self, command: Command) -> None:
        """Begin to read an epoch; start the process if it does not run."""
        self._reading, self._ended = Reading(), threading.Event()
        if not self.process.alive:
            self.process.start()
        command = msgspec.structs.replace(command, target=self.control.address)
        self.process.send(msgspec.json.encode(command))

    def finish(self, seconds: float) -> Reading:
        """Wait for the end of the epoch, or of the process, and return what was received.

        Raises:
            TimeoutError: if it does not end within `seconds`.
        """
        if not self._ended.wait(seconds):
            self.process.signal(signal.SIGUSR1)
            count = len(self._reading.received)
            raise TimeoutError(
                f"the epoch of {self.process.role} did not end within {seconds:g} s; "
                f"{count} elements arrived. The end of its log:\n{self.process.log_tail}"
            )
        return self._reading

    def kill(self) -> None:
        """Kill the process."""
        self._reading.killed = True
        self.process.kill()

    def _on_line(self, line: bytes) -> None:
        if not line:
            if not self._ended.is_set() and not self._reading.killed:
                self._reading.error = "nothing: its process ended"
            self._ended.set()
        elif line.startswith(b"{"):
            outcome = msgspec.json.decode(line, type=Outcome)
            self._reading.stats, self._reading.error = outcome.stats, outcome.error
            self._ended.set()
        elif line.endswith(b"\n"):
            number, task = line.split()
            self._reading.received.append((int(number), int(task)))
            self.received += 1


class Cluster(contextlib.ExitStack):
    """A dispatcher, worker machines and trainers, with links between all of them.

    Args:
        directory: of logs.
        workers: the number of worker machines.
        trainers: names of trainers.
        worker: fields of `WorkerConfig`.
        dispatcher: fields of `DispatcherConfig`; its journal is in `directory`.
    """

    def __init__(
        self,
        directory: Path,
        workers: int,
        trainers: tuple[str, ...],
        *,
        worker: dict[str, Any] | None = None,
        dispatcher: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        log = directory / "dispatcher.log"
        self.journal = directory / "journal"
        fields = {
            "fault_tolerant_mode": True,
            "work_dir": str(self.journal),
            "compaction_bytes": 16 << 10,  # so that it is killed while it compacts
            **(dispatcher or {}),
        }
        self.dispatcher = Server(DISPATCHER, "dispatcher", fields, log)
        self.machines = [
            WorkerMachine(number, directory, worker or {}) for number in range(workers)
        ]
        self.trainers = [Trainer(role, directory) for role in trainers]
        self._to_dispatcher = [machine.control for machine in self.machines]
        self._to_dispatcher += [trainer.control for trainer in self.trainers]

    def __enter__(self) -> Self:
        for machine in self.machines:
            self.enter_context(machine.data)
        for link in self._to_dispatcher:
            self.enter_context(link)
        try:
            self.callback(self.dispatcher.end)
            self.start_dispatcher()
            for machine in self.machines:
                self.callback(machine.supervisor.end)
                self.callback(machine.thaw)
                machine.supervisor.serve()
            for trainer in self.trainers:
                self.callback(trainer.process.end)
        except BaseException:
            self.close()
            raise
        return self

    def wait_registered(self) -> None:
        """Wait until the dispatcher knows all workers.

        Raises:
            AssertionError: if it does not.
        """

        def registered() -> bool:
            reply = rpc.call(self.machines[0].control.address, m.GetCluster(), START_SECONDS)
            return isinstance(reply, m.ClusterReply) and len(reply.workers) == len(self.machines)

        assert eventually(registered, START_SECONDS), "some workers do not register"

    def start_dispatcher(self) -> None:
        """Start the dispatcher, and lead all links to it."""
        port = self.dispatcher.serve()["port"]
        for link in self._to_dispatcher:
            link.target = port

    def kill_dispatcher(self) -> None:
        """Kill the dispatcher."""
        self.leave_dispatcher()
        self.dispatcher.kill()

    def leave_dispatcher(self) -> None:
        """Reset new connections to the dispatcher until it is started again."""
        for link in self._to_dispatcher:
            link.target = 0

    def processes(self) -> Iterator[tuple[str, int]]:
        """Yield role and process id of each running process."""
        yield "dispatcher", self.dispatcher.pid
        for machine in self.machines:
            yield f"supervisor of {machine.supervisor.role}", machine.supervisor.pid
            yield machine.supervisor.role, machine.supervisor.worker_pid
        for trainer in self.trainers:
            yield trainer.process.role, trainer.process.pid


def unused_port() -> int:
    """Return a port that no process uses and that outgoing connections do not get.

    So it is still free when the worker that listens on it is started again.
    """
    candidates = random.SystemRandom()
    while True:
        port = candidates.randrange(10_000, EPHEMERAL_PORTS.start)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
