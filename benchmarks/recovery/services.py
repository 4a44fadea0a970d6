"""The services that are harmed: processes of stoker and of tf.data service, linked by proxies."""

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.faults.proxy import Forwarder
from tests.faults.soak.processes import DISPATCHER, WORKER, Child, Server, WorkerMachine

_HERE = Path(__file__).parent
_TENSORFLOW = str(_HERE / "tensorflow_server.py")
WORKERS = 2
DEADLINE_SECONDS = 60.0

GRACE_MS = 25_000
"""The default of `stoker worker --grace`."""


@dataclass(frozen=True)
class Arrival:
    """An element: when it was received, its number, and the process that computed it."""

    time: float
    number: int
    worker: int


@dataclass
class Epoch:
    """What a trainer received in an epoch, and when and how it ended."""

    arrivals: list[Arrival] = field(default_factory=list)
    ended_at: float | None = None
    error: str = ""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds after an arrival or the end; return whether it does."""
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def wait_count(self, count: int, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until `count` elements have arrived.

        Raises:
            RuntimeError: if they do not arrive within `seconds`.
        """
        if not self.wait_for(lambda: len(self.arrivals) >= count, seconds):
            raise RuntimeError(f"{len(self.arrivals)} of {count} elements in {seconds:g} s")


class Trainer:
    """A trainer's process that reads an epoch at a time through a link to the dispatcher."""

    def __init__(self, system: str, name: str, directory: Path) -> None:
        self.link = Forwarder()
        self.epoch = Epoch()
        words = [str(_HERE / "trainer.py"), system]
        self.process = Child(name, words, directory / f"{name}.log", self._on_line)

    def begin(
        self,
        elements: int,
        mode: str,
        job_name: str | None = None,
        consumer_index: int | None = None,
        num_consumers: int | None = None,
    ) -> Epoch:
        """Begin to read an epoch."""
        self.epoch = Epoch()
        if not self.process.alive:
            self.process.start()
        command = {
            "target": self.link.address,
            "elements": elements,
            "mode": mode,
            "job_name": job_name,
            "consumer_index": consumer_index,
            "num_consumers": num_consumers,
        }
        self.process.send(json.dumps(command).encode())
        return self.epoch

    def _on_line(self, line: bytes) -> None:
        epoch = self.epoch
        with epoch.changed:
            if line.startswith(b"{"):
                outcome = json.loads(line)
                epoch.ended_at, epoch.error = outcome["time"], outcome["error"]
            elif line.endswith(b"\n"):
                when, number, worker = line.split()
                epoch.arrivals.append(Arrival(float(when), int(number), int(worker)))
            epoch.changed.notify_all()


class Service(contextlib.ExitStack):
    """A dispatcher, two workers and two trainers of one system, in processes of their own.

    Args:
        system: "stoker" or "tf.data".
        directory: of logs, journals and working directories.
        journal: run the dispatcher with `fault_tolerant_mode`.
    """

    def __init__(self, system: str, directory: Path, *, journal: bool) -> None:
        super().__init__()
        self.system = system
        stoker = system == "stoker"
        commands: Sequence[Sequence[str]] = (
            (DISPATCHER, WORKER)
            if stoker
            else ((_TENSORFLOW, "dispatcher"), (_TENSORFLOW, "worker"))
        )
        work_dir = directory / "journal"
        work_dir.mkdir()
        fields: dict[str, Any] = (
            {"work_dir": str(work_dir), "fault_tolerant_mode": True} if journal else {}
        )
        log = directory / "dispatcher.log"
        self.dispatcher = Server(commands[0], "dispatcher", fields, log)
        self.machines = []
        for number in range(WORKERS):
            own = directory / f"worker-{number}"
            own.mkdir()
            extra: dict[str, Any] = (
                {"shutdown_quiet_period_ms": GRACE_MS} if stoker else {"directory": str(own)}
            )
            self.machines.append(WorkerMachine(number, directory, extra, commands[1]))
        self.trainers = [Trainer(system, f"trainer {number}", directory) for number in range(2)]
        self._to_dispatcher = [machine.control for machine in self.machines]
        self._to_dispatcher += [trainer.link for trainer in self.trainers]

    def __enter__(self) -> Self:
        for link in [*self._to_dispatcher, *(machine.data for machine in self.machines)]:
            self.enter_context(link)
        for process in self._processes():
            self.callback(process.end)
        for machine in self.machines:
            self.callback(machine.thaw)
        try:
            self.start_dispatcher()
            for machine in self.machines:
                machine.supervisor.serve()
        except BaseException:
            self.close()
            raise
        return self

    def start_dispatcher(self) -> None:
        """Start the dispatcher; all links lead to it."""
        port = self.dispatcher.serve()["port"]
        for link in self._to_dispatcher:
            link.target = port

    def kill_dispatcher(self) -> None:
        """Kill the dispatcher."""
        for link in self._to_dispatcher:
            link.target = 0
        self.dispatcher.kill()

    def worker_pid(self, number: int) -> int:
        """Return the process id of a worker; 0 while there is none."""
        supervisor = self.machines[number].supervisor
        return supervisor.worker_pid if self.system == "stoker" else supervisor.pid

    def kill_worker(self, number: int) -> None:
        """Kill a worker; its supervisor, or this process in place of one, starts another."""
        machine = self.machines[number]
        if self.system == "stoker":
            machine.kill_worker()
            return
        machine.supervisor.kill()
        machine.supervisor.serve()

    def stop_worker(self, number: int) -> None:
        """Ask a worker to stop by SIGTERM, and start it again when it has ended."""
        supervisor = self.machines[number].supervisor
        supervisor.signal(signal.SIGTERM)
        supervisor.wait(DEADLINE_SECONDS)
        supervisor.serve()

    def _processes(self) -> list[Child]:
        return [
            self.dispatcher,
            *(machine.supervisor for machine in self.machines),
            *(trainer.process for trainer in self.trainers),
        ]
