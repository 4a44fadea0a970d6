"""Checks of each worker: can this machine read elements from it, and by which transport."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stoker.cli.doctor.answers import Answer, mismatch
from stoker.cli.doctor.data_plane import probe
from stoker.cli.doctor.findings import Finding, Level, finding
from stoker.cli.doctor.machine import Machine
from stoker.cli.doctor.ports import PortError, check_port
from stoker.errors import InvalidArgumentError, PermissionDeniedError, StokerError
from stoker.service import messages as m
from stoker.wire import frames as f
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
        answer: to a probe, if this machine can read from it.
        network_protocol: the transport by which it can be read over the network; "" if by none.
        protocol: the same, or "shm" if memory can be shared.
    """

    place: m.WorkerPlace
    findings: list[Finding] = field(default_factory=list)
    answer: Answer[f.WorkerProbeReply] | None = None
    network_protocol: str = ""
    protocol: str = ""

    @property
    def name(self) -> str:
        """The name of the worker in findings."""
        return f"worker {self.place.address}"

    @property
    def round_trip(self) -> float:
        """Seconds; only of a worker with an answer."""
        assert self.answer is not None
        return self.answer.round_trip

    def add(self, name: str, **values: Any) -> None:
        """Append a finding about this worker."""
        self.findings.append(self.finding(name, **values))

    def finding(self, name: str, level: Level | None = None, **values: Any) -> Finding:
        """Return a finding about this worker, which is shown elsewhere."""
        return finding("workers", name, self.name, level, **values)


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
        with suppress(IndexError):  # all checks have begun
            while True:
                number, place = waiting.pop()
                reports[number] = _checked(place, machine, timeout)

    # An executor would wait at exit for checks that are late; daemon threads end with the process.
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


def _checked(place: m.WorkerPlace, machine: Machine, timeout: float) -> WorkerReport:
    try:
        return check_worker(place, machine, timeout)
    except Exception as error:  # noqa: BLE001 - the others are checked all the same
        return _not_checked(place, f"the check failed: {error!r}")


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
    # The versions are those of the process: shared memory has the same.
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
    # Loopback is this machine here, and the machine of the worker there.
    own = is_loopback(host) or is_unspecified(host)
    try:
        check_port(host, port, timeout)
        if protocol == "grpc" and "grpc" not in machine.modules:
            report.add("grpc-missing")
            return
        answer = probe(protocol, address, timeout, machine.clock)
    except PortError as error:
        if own and error.trouble == "port-refused":
            report.add("loopback-advertised", address=address, error="refuses connections")
        else:
            report.add(error.trouble, address=address, error=error)
    except StokerError as error:
        report.add("loopback-advertised" if own else "not-stoker", address=address, error=error)
    else:
        if not _is_same(answer.reply, report.place):
            name, text = "loopback-advertised" if own else "another-worker", "is another worker"
            report.add(name, address=address, error=text, worker=answer.reply.worker)
        elif _has_common_version(report, answer.reply, machine):
            report.answer, report.network_protocol, report.protocol = answer, protocol, protocol


def _has_common_version(report: WorkerReport, reply: f.WorkerProbeReply, machine: Machine) -> bool:
    """Return whether a trainer here is served by this worker; if not, report it."""
    # A probe is answered in any version, so that the answer says which versions there are.
    differs = mismatch(reply, "data protocol", machine.data_protocol)
    if differs:
        report.add("protocol-mismatch", stoker=machine.stoker, **differs)
    return not differs


def _is_same(reply: f.WorkerProbeReply, place: m.WorkerPlace) -> bool:
    """Return whether a worker is the one that the dispatcher knows."""
    if reply.worker_id:
        return reply.worker_id == place.worker_id
    return reply.worker == place.address  # it registers just now


# ── shared memory ─────────────────────────────────────────────────────────────────────────────────
def _check_shared_memory(report: WorkerReport, machine: Machine, timeout: float) -> None:
    address = report.place.data_transfer_addresses["shm"]
    network = report.answer
    try:
        answer = probe("shm", address, timeout, machine.clock)
    except StokerError as error:
        # Workers of every host offer shared memory; only on this host a failure is a finding.
        if network is None or not machine.host or network.reply.host != machine.host:
            return
        seen, ways = str(error), ""
        if not isinstance(error, PermissionDeniedError):
            seen = "it runs on this host, but in another network namespace, such as a container's"
            ways = "in one pod or with --network host, "
        report.add("shared-memory-unused", error=seen, ways=ways)
    else:
        is_same = _is_same(answer.reply, report.place)
        if is_same and _has_common_version(report, answer.reply, machine):
            report.answer, report.protocol = answer, "shm"
            report.findings = [*map(_softened, report.findings)]


def _softened(found: Finding) -> Finding:
    """Make a fault a warning: trainers on this machine read the worker by shared memory."""
    if found.level is not Level.FAULT:
        return found
    seen = f"{found.seen}; from this machine it is read by shared memory"
    return msgspec.structs.replace(found, level=Level.WARNING, seen=seen)
