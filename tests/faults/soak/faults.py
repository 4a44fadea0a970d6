"""The faults of a soak: each harms one part of the cluster for a while and repairs it."""

import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.soak.processes import Cluster, WorkerMachine

DRAIN_SECONDS = 120.0
"""Deadline of a drain: longer than the grace of the workers."""


FULL_SECONDS = 120.0
"""Deadline of the end of a dispatcher whose disk is full: the time to its next record."""


@dataclass(frozen=True)
class Fault:
    """A fault of one target.

    Attributes:
        name: for the story.
        target: "dispatcher", "worker" or "trainer"; one fault at a time harms a target.
        inject: harms the cluster, waits, and repairs it. Takes the cluster, the number of the
            target, and a function that waits for some seconds.
        seconds: shortest and longest time from the harm to the repair.
        losses: a worker may be lost.
        drains: a worker drains.
    """

    name: str
    target: str
    inject: Callable[[Cluster, int, Callable[[], object]], None]
    seconds: tuple[float, float] = (0.0, 0.0)
    losses: bool = False
    drains: bool = False


# ── the dispatcher ───────────────────────────────────────────────────────────────────────────────
def _freeze_dispatcher(cluster: Cluster, _: int, wait: Callable[[], object]) -> None:
    cluster.dispatcher.signal(signal.SIGSTOP)
    wait()
    cluster.dispatcher.signal(signal.SIGCONT)


def _kill_dispatcher(cluster: Cluster, _: int, wait: Callable[[], object]) -> None:
    cluster.kill_dispatcher()
    wait()
    cluster.start_dispatcher()


def _stop_dispatcher(cluster: Cluster, _: int, wait: Callable[[], object]) -> None:
    cluster.leave_dispatcher()
    cluster.dispatcher.end()
    wait()
    cluster.start_dispatcher()


def _fill_disk(cluster: Cluster, _: int, wait: Callable[[], object]) -> None:
    fill_disk(cluster)
    wait()
    cluster.start_dispatcher()


def fill_disk(cluster: Cluster) -> int:
    """Let the dispatcher write no file beyond 4 KB; return its exit status when it has ended.

    Raises:
        AssertionError: if it goes on.
    """
    resource.prlimit(cluster.dispatcher.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    status = cluster.dispatcher.wait(FULL_SECONDS)
    cluster.leave_dispatcher()
    assert status > 0, f"the dispatcher went on with a full disk: {status}"
    return status


# ── workers ──────────────────────────────────────────────────────────────────────────────────────
def _kill_worker(cluster: Cluster, number: int, wait: Callable[[], object]) -> None:
    cluster.machines[number].kill_worker()
    wait()


def _kill_machine(cluster: Cluster, number: int, wait: Callable[[], object]) -> None:
    supervisor = cluster.machines[number].supervisor
    supervisor.kill()
    wait()
    supervisor.serve()


def _freeze_machine(cluster: Cluster, number: int, wait: Callable[[], object]) -> None:
    machine = cluster.machines[number]
    machine.freeze()
    wait()
    machine.thaw()


def _drain_machine(cluster: Cluster, number: int, wait: Callable[[], object]) -> None:
    supervisor = cluster.machines[number].supervisor
    supervisor.signal(signal.SIGTERM)
    supervisor.wait(DRAIN_SECONDS)
    wait()
    supervisor.serve()


# ── the network ──────────────────────────────────────────────────────────────────────────────────
def _on_links(
    harm: Callable[[WorkerMachine], object],
) -> Callable[[Cluster, int, Callable[[], object]], None]:
    def inject(cluster: Cluster, number: int, wait: Callable[[], object]) -> None:
        machine = cluster.machines[number]
        harm(machine)
        wait()
        for link in machine.links:
            link.heal()

    return inject


def _cut(machine: WorkerMachine) -> None:
    for link in machine.links:
        link.cut()


def _swallow(machine: WorkerMachine) -> None:
    for link in machine.links:
        link.swallows = True


def _swallow_replies(machine: WorkerMachine) -> None:
    for link in machine.links:
        link.swallows_replies = True


def _swallow_data(machine: WorkerMachine) -> None:
    machine.data.swallows = True


def _delay(machine: WorkerMachine) -> None:
    for link in machine.links:
        link.delay = 0.1


def _cut_trainer(cluster: Cluster, number: int, wait: Callable[[], object]) -> None:
    cluster.trainers[number].control.cut()
    wait()


def _swallow_trainer(cluster: Cluster, number: int, wait: Callable[[], object]) -> None:
    link = cluster.trainers[number].control
    link.swallows = True
    wait()
    link.heal()


LEASE = 10.0
"""`worker_timeout_ms` in seconds: a worker that is away for less is not lost."""

FAULTS = (
    Fault("SIGSTOP of the dispatcher", "dispatcher", _freeze_dispatcher, (0.5, 2.0)),
    Fault("SIGSTOP of the dispatcher beyond leases", "dispatcher", _freeze_dispatcher, (12, 15)),
    Fault("kill -9 of the dispatcher", "dispatcher", _kill_dispatcher, (0.0, 3.0)),
    Fault("SIGTERM of the dispatcher", "dispatcher", _stop_dispatcher, (0.0, 3.0)),
    Fault("full disk of the dispatcher", "dispatcher", _fill_disk, (0.0, 3.0)),
    Fault("kill -9 of a worker", "worker", _kill_worker, (1.0, 3.0), losses=True),
    Fault("kill -9 of a supervisor", "worker", _kill_machine, (0.0, 3.0), losses=True),
    Fault("SIGSTOP of a worker", "worker", _freeze_machine, (0.2, LEASE / 4)),
    Fault(
        "SIGSTOP of a worker beyond its lease",
        "worker",
        _freeze_machine,
        (1.2 * LEASE, 1.5 * LEASE),
        losses=True,
    ),
    Fault("SIGTERM of a supervisor", "worker", _drain_machine, (0.0, 2.0), drains=True),
    Fault("cut connections of a worker", "worker", _on_links(_cut)),
    Fault("unreachable worker", "worker", _on_links(_swallow), (0.5, LEASE / 4)),
    Fault(
        "worker unreachable beyond its lease",
        "worker",
        _on_links(_swallow),
        (1.2 * LEASE, 1.5 * LEASE),
        losses=True,
    ),
    Fault(
        "a worker gets no answers, and trainers none of its elements",
        "worker",
        _on_links(_swallow_replies),
        (1.0, 1.5 * LEASE),
        losses=True,
    ),
    Fault("swallowed data of a worker", "worker", _on_links(_swallow_data), (1.0, 15.0)),
    Fault("delayed packets of a worker", "worker", _on_links(_delay), (1.0, 5.0)),
    Fault("cut connection of a trainer to the dispatcher", "trainer", _cut_trainer),
    Fault("trainer without the dispatcher", "trainer", _swallow_trainer, (1.0, 15.0)),
)
