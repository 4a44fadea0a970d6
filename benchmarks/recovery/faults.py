"""The faults that are measured: each harms a service during an epoch and repairs it."""

import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from recovery.services import Service

VICTIM = 0
AWAY_SECONDS = 30.0
RESTART_SECONDS = 1.0
KILLS, BETWEEN_KILLS_SECONDS = 8, 3.0
FULL_SECONDS = 5.0

SUCCESSOR_SECONDS = 15.0
"""Time by which an epoch is longer so that a new process takes part in it."""


@dataclass(frozen=True)
class Fault:
    """A fault, and how it is measured.

    Attributes:
        title: for the table.
        inject: harms the service, repairs it, and returns the time from which recovery counts.
        seconds: that it lasts; the epoch is longer by this time.
        journal: `fault_tolerant_mode` of the dispatcher.
        trainers: of the job.
        restore: called after the epoch, to bring back what `inject` has not repaired.
        recovered_by: "victim": the worker delivers again; "successor": another process delivers;
            "": no worker is harmed.
    """

    title: str
    inject: Callable[[Service], float]
    seconds: float = 0.0
    journal: bool = False
    trainers: int = 1
    restore: Callable[[Service], object] = lambda _: None
    recovered_by: str = ""


def _kill_worker(service: Service) -> float:
    began = time.monotonic()
    service.kill_worker(VICTIM)
    return began


def _kill_machine(service: Service) -> float:
    began = time.monotonic()
    service.machines[VICTIM].supervisor.kill()
    return began


def _start_machine(service: Service) -> None:
    service.machines[VICTIM].supervisor.serve()


def _freeze_worker(service: Service) -> float:
    service.machines[VICTIM].freeze()
    time.sleep(AWAY_SECONDS)
    service.machines[VICTIM].thaw()
    return time.monotonic()


def _stop_worker(service: Service) -> float:
    began = time.monotonic()
    service.stop_worker(VICTIM)
    return began


def _hide_worker(service: Service) -> float:
    for link in service.machines[VICTIM].links:
        link.swallows = True
    time.sleep(AWAY_SECONDS)
    for link in service.machines[VICTIM].links:
        link.heal()
    return time.monotonic()


def _cut_worker(service: Service) -> float:
    began = time.monotonic()
    for link in service.machines[VICTIM].links:
        link.cut()
    return began


def _kill_trainer(service: Service) -> float:
    began = time.monotonic()
    service.trainers[-1].process.kill()
    return began


def _freeze_dispatcher(service: Service) -> float:
    began = time.monotonic()
    service.dispatcher.signal(signal.SIGSTOP)
    time.sleep(AWAY_SECONDS)
    service.dispatcher.signal(signal.SIGCONT)
    return began


def _kill_dispatcher(service: Service) -> float:
    began = time.monotonic()
    service.kill_dispatcher()
    time.sleep(RESTART_SECONDS)
    service.start_dispatcher()
    return began


def _kill_dispatcher_repeatedly(service: Service) -> float:
    began = time.monotonic()
    for _ in range(KILLS):
        service.kill_dispatcher()
        service.start_dispatcher()
        time.sleep(BETWEEN_KILLS_SECONDS)
    return began


def _fill_disk(service: Service) -> float:
    began = time.monotonic()
    pid = service.dispatcher.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    if service.dispatcher.ends_within(FULL_SECONDS):
        service.start_dispatcher()
    else:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    return began


FAULTS = {
    "worker-kill": Fault(
        "worker: kill -9", _kill_worker, SUCCESSOR_SECONDS, recovered_by="successor"
    ),
    "worker-gone": Fault(
        "worker: its machine ends and does not come back", _kill_machine, restore=_start_machine
    ),
    "worker-freeze": Fault(
        "worker: SIGSTOP for 30 s", _freeze_worker, AWAY_SECONDS, recovered_by="victim"
    ),
    "worker-stop": Fault(
        "worker: SIGTERM, started again when it has ended",
        _stop_worker,
        SUCCESSOR_SECONDS,
        recovered_by="successor",
    ),
    "worker-unreachable": Fault(
        "worker: its machine unreachable for 30 s",
        _hide_worker,
        AWAY_SECONDS,
        recovered_by="victim",
    ),
    "worker-cut": Fault("worker: its connections reset", _cut_worker, recovered_by="victim"),
    "trainer-kill": Fault("one of two trainers of a job: kill -9", _kill_trainer, trainers=2),
    "dispatcher-freeze": Fault("dispatcher: SIGSTOP for 30 s", _freeze_dispatcher, AWAY_SECONDS),
    "dispatcher-kill": Fault(
        "dispatcher: kill -9, started again after 1 s, no journal",
        _kill_dispatcher,
        RESTART_SECONDS,
    ),
    "dispatcher-kill-journal": Fault(
        "dispatcher: kill -9, started again after 1 s, with its journal",
        _kill_dispatcher,
        RESTART_SECONDS,
        journal=True,
    ),
    "dispatcher-kills": Fault(
        "dispatcher: kill -9 eight times, each 3 s after it serves, with its journal",
        _kill_dispatcher_repeatedly,
        KILLS * BETWEEN_KILLS_SECONDS,
        journal=True,
    ),
    "disk-full": Fault(
        "dispatcher: full disk of its journal; room after 5 s, or when it has ended",
        _fill_disk,
        FULL_SECONDS,
        journal=True,
    ),
}
