"""Checks of each worker: can this machine read elements from it, and by which transport."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stoker.cli.doctor import findings
from stoker.cli.doctor.data_plane import NoWorkerError, Probed, probe
from stoker.cli.doctor.dispatcher import mismatch
from stoker.cli.doctor.findings import Finding, Level
from stoker.cli.doctor.machine import Machine
from stoker.cli.doctor.ports import PortError, check_port
from stoker.errors import InvalidArgumentError, PermissionDeniedError, StokerError
from stoker.service import messages as m
from stoker.wire.addresses import is_loopback, is_unspecified, parse_address

THREADS = 32
SECONDS = 30.0
"""Workers that are checked at a time, and the least time for all of them."""


@dataclass
class WorkerReport:
    """The findings about one worker.

    Attributes:
        place: as the dispatcher knows it.
        findings: none if all is well.
        probed: its answer, if this machine can read from it.
        network_protocol: the transport by which it can be read over the network; "" if by none.
        protocol: the same, or "shm" if memory can be shared.
    """

    place: m.WorkerPlace
    findings: list[Finding] = field(default_factory=list)
    probed: Probed | None = None
    network_protocol: str = ""
    protocol: str = ""

    def add(self, name: str, **values: Any) -> None:
        """Append a finding about this worker."""
        self.findings.append(self.finding(name, **values))

    def finding(self, name: str, level: Level | None = None, **values: Any) -> Finding:
        """Return a finding about this worker, which is shown elsewhere."""
        return findings.workers(name, f"worker {self.place.address}", level, **values)


def check_workers(
    places: Sequence[m.WorkerPlace], machine: Machine, timeout: float
) -> list[WorkerReport]:
    """Return a report of each worker; several are checked at a time.

    Args:
        places: the workers, as the dispatcher knows them.
        machine: facts about this machine.
        timeout: seconds for each step of a check.
    """
    reports: dict[int, WorkerReport] = {}
    waiting = list(enumerate(places))[::-1]

    def check() -> None:
        while True:
            try:
                number, place = waiting.pop()
            except IndexError:
                return
            try:
                reports[number] = check_worker(place, machine, timeout)
            except Exception as error:  # noqa: BLE001 - the others are checked all the same
                reports[number] = _not_checked(place, f"the check failed: {error!r}")

    threads = [
        threading.Thread(target=check, name="stoker-doctor", daemon=True)
        for _ in range(min(THREADS, len(places)))
    ]
    seconds = max(SECONDS, 5 * timeout)
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    waiting.clear()
    late = f"the check took more than {seconds:g} s"
    return [reports.get(number) or _not_checked(place, late) for number, place in enumerate(places)]


def _not_checked(place: m.WorkerPlace, why: str) -> WorkerReport:
    report = WorkerReport(place)
    report.add("not-checked", why=why)
    return report


def check_worker(place: m.WorkerPlace, machine: Machine, timeout: float) -> WorkerReport:
    """Return the report of one worker."""
    report = WorkerReport(place)
    offered = place.data_transfer_addresses
    protocol = next((name for name in ("tcp", "grpc") if name in offered), "")
    if not protocol:
        report.add("no-common-transport", transports=", ".join(sorted(offered)) or "nothing")
        return report
    _check_network(report, protocol, machine, timeout)
    if "shm" in offered and not any(each.name == "protocol-mismatch" for each in report.findings):
        _check_shared_memory(report, machine, timeout)
    return report


# ── over the network ──────────────────────────────────────────────────────────────────────────────
def _check_network(report: WorkerReport, protocol: str, machine: Machine, timeout: float) -> None:
    address = report.place.data_transfer_addresses[protocol]
    try:
        host, port = parse_address(address)
    except InvalidArgumentError as error:
        report.add("address-invalid", error=error)
        return
    try:
        check_port(host, port, timeout)
    except PortError as error:
        if _is_own_machine(host) and error.trouble == "port-refused":
            report.add("loopback-advertised", address=address, error="refuses connections")
        else:
            report.add(error.trouble, address=address, error=error)
        return
    if protocol == "grpc" and "grpc" not in machine.modules:
        report.add("grpc-missing")
        return
    _check_answer(report, protocol, address, machine, timeout)


def _check_answer(
    report: WorkerReport, protocol: str, address: str, machine: Machine, timeout: float
) -> None:
    own = _is_own_machine(parse_address(address)[0])
    try:
        probed = probe(protocol, address, timeout, machine.clock)
    except (NoWorkerError, StokerError) as error:
        report.add("loopback-advertised" if own else "not-stoker", address=address, error=error)
        return
    if not _is_same(probed, report.place):
        name, text = "loopback-advertised" if own else "another-worker", "is another worker"
        report.add(name, address=address, error=text, worker=probed.reply.worker)
        return
    if _has_common_version(report, probed, machine):
        report.probed, report.network_protocol, report.protocol = probed, protocol, protocol


def _has_common_version(report: WorkerReport, probed: Probed, machine: Machine) -> bool:
    """Return whether a trainer here is served by this worker; if not, report it.

    Probes are answered in any version.
    """
    differs = mismatch(probed.reply, "data protocol", machine.data_protocol)
    if differs:
        report.add("protocol-mismatch", stoker=machine.stoker, **differs)
    return not differs


def _is_same(probed: Probed, place: m.WorkerPlace) -> bool:
    """Return whether a worker is the one that the dispatcher knows."""
    reply = probed.reply
    if reply.worker_id:
        return reply.worker_id == place.worker_id
    return reply.worker == place.address  # it registers just now


def _is_own_machine(host: str) -> bool:
    """Return whether every machine takes `host` for itself."""
    return is_loopback(host) or is_unspecified(host)


# ── shared memory ─────────────────────────────────────────────────────────────────────────────────
def _check_shared_memory(report: WorkerReport, machine: Machine, timeout: float) -> None:
    address = report.place.data_transfer_addresses["shm"]
    same_host = (
        report.probed is not None
        and machine.host != ""
        and report.probed.reply.host == machine.host
    )
    try:
        probed = probe("shm", address, timeout, machine.clock)
    except (NoWorkerError, StokerError) as error:
        if not same_host:
            return
        if isinstance(error, PermissionDeniedError):
            report.add("shared-memory-unused", error=error, ways="")
            return
        seen = "it runs on this host, but in another network namespace, such as a container's"
        ways = "in one pod or with --network host, "
        report.add("shared-memory-unused", error=seen, ways=ways)
    else:
        if _is_same(probed, report.place) and _has_common_version(report, probed, machine):
            report.probed, report.protocol = probed, "shm"
            _soften(report)


def _soften(report: WorkerReport) -> None:
    """Turn faults into warnings: trainers on this machine read the worker by shared memory."""
    for number, finding in enumerate(report.findings):
        if finding.level is Level.FAULT:
            seen = f"{finding.seen}; from this machine it is read by shared memory"
            report.findings[number] = msgspec.structs.replace(
                finding, level=Level.WARNING, seen=seen
            )
