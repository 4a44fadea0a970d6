"""Checks of each worker: can this machine read elements from it, and by which transport."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.cli.doctor.data_plane import NoWorkerError, Probed, probe
from stoker.cli.doctor.findings import Finding, Level
from stoker.cli.doctor.machine import Machine
from stoker.cli.doctor.ports import PortError, PortTrouble, check_port
from stoker.errors import InvalidArgumentError, PermissionDeniedError, StokerError
from stoker.service import messages as m
from stoker.wire.addresses import is_loopback, is_unspecified, parse_address

THREADS = 32
SECONDS = 30.0
"""Workers that are checked at a time, and the least time for all of them."""

MISMATCH = "protocol-mismatch"

ADVERTISE_FIX = (
    "let it advertise an address that this machine reaches: `--worker-address`, or "
    "`worker_address` of its WorkerConfig"
)

PORT_FIXES = {
    PortTrouble.UNRESOLVED: f"add the name to this machine's name service, or {ADVERTISE_FIX}",
    PortTrouble.REFUSED: (
        f"correct the port or its forwarding, or {ADVERTISE_FIX}; a worker that has just died is "
        "listed until its lease ends, for 10 s by default"
    ),
    PortTrouble.DROPPED: (
        "a firewall, security group or network policy drops the packets: open this TCP port of "
        f"the worker from here (a worker's `port` is fixed with `--port`), or {ADVERTISE_FIX}"
    ),
    PortTrouble.UNREACHABLE: f"check that this machine has a route to it, or {ADVERTISE_FIX}",
}


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

    def add(self, level: Level, name: str, seen: str, fix: str = "") -> None:
        """Append a finding about this worker."""
        self.findings.append(self.finding(level, name, seen, fix))

    def finding(self, level: Level, name: str, seen: str, fix: str = "") -> Finding:
        """Return a finding about this worker, which is shown elsewhere."""
        return Finding(level, name, f"worker {self.place.address}", seen, fix)


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
    report.add(Level.NOT_CHECKED, "not-checked", why)
    return report


def check_worker(place: m.WorkerPlace, machine: Machine, timeout: float) -> WorkerReport:
    """Return the report of one worker."""
    report = WorkerReport(place)
    offered = place.data_transfer_addresses
    protocol = next((name for name in ("tcp", "grpc") if name in offered), "")
    if not protocol:
        by = ", ".join(sorted(offered)) or "nothing"
        fix = "install the same stoker version on both"
        report.add(Level.FAULT, "no-common-transport", f"serves elements by {by} only", fix)
        return report
    _check_network(report, protocol, machine, timeout)
    if "shm" in offered and not any(each.name == MISMATCH for each in report.findings):
        _check_shared_memory(report, machine, timeout)
    return report


# ── over the network ──────────────────────────────────────────────────────────────────────────────
def _check_network(report: WorkerReport, protocol: str, machine: Machine, timeout: float) -> None:
    address = report.place.data_transfer_addresses[protocol]
    try:
        host, port = parse_address(address)
    except InvalidArgumentError as error:
        report.add(
            Level.FAULT,
            "address-invalid",
            f"advertises an address that cannot be used: {error}",
            ADVERTISE_FIX,
        )
        return
    try:
        check_port(host, port, timeout)
    except PortError as error:
        if _is_own_machine(host) and error.trouble is PortTrouble.REFUSED:
            _add_loopback(report, address, "refuses connections")
            return
        seen = f"cannot be reached at {address}, which it advertises: {error}"
        report.add(Level.FAULT, error.trouble.value, seen, PORT_FIXES[error.trouble])
        return
    if protocol == "grpc" and "grpc" not in machine.modules:
        fix = (
            "install it here: pip install 'stoker[grpc]'; or start the worker without "
            "`--data-transfer-protocol grpc`"
        )
        report.add(Level.FAULT, "grpc-missing", "serves gRPC only, and grpcio is not here", fix)
        return
    _check_answer(report, protocol, address, machine, timeout)


def _check_answer(
    report: WorkerReport, protocol: str, address: str, machine: Machine, timeout: float
) -> None:
    own = _is_own_machine(parse_address(address)[0])
    try:
        probed = probe(protocol, address, timeout, machine.clock)
    except (NoWorkerError, StokerError) as error:
        if own:
            _add_loopback(report, address, str(error))
        else:
            seen = f"the server at {address}, which it advertises, {error}"
            fix = f"another program or a proxy has this port: {ADVERTISE_FIX}"
            report.add(Level.FAULT, "not-stoker", seen, fix)
        return
    if not _is_same(probed, report.place):
        if own:
            _add_loopback(report, address, "is another worker")
        else:
            seen = (
                f"another worker, {probed.reply.worker}, answers at {address}, which it advertises"
            )
            fix = f"give each worker a port or forwarding of its own: {ADVERTISE_FIX}"
            report.add(Level.FAULT, "another-worker", seen, fix)
        return
    if _has_common_version(report, probed, machine):
        report.probed, report.network_protocol, report.protocol = probed, protocol, protocol


def _has_common_version(report: WorkerReport, probed: Probed, machine: Machine) -> bool:
    """Return whether a trainer here is served by this worker; if not, report it.

    Probes are answered in any version.
    """
    reply, (first, last) = probed.reply, machine.data_protocol
    if first <= reply.protocol_max and reply.protocol_min <= last:
        return True
    seen = (
        f"it runs stoker {reply.stoker} with data protocol {reply.protocol_min} to "
        f"{reply.protocol_max}; here is stoker {machine.stoker} with {first} to {last}"
    )
    report.add(Level.FAULT, MISMATCH, seen, "install the same stoker version on both")
    return False


def _is_same(probed: Probed, place: m.WorkerPlace) -> bool:
    """Return whether a worker is the one that the dispatcher knows."""
    reply = probed.reply
    if reply.worker_id:
        return reply.worker_id == place.worker_id
    return reply.worker == place.address  # it registers just now


def _is_own_machine(host: str) -> bool:
    """Return whether every machine takes `host` for itself."""
    return is_loopback(host) or is_unspecified(host)


def _add_loopback(report: WorkerReport, address: str, seen: str) -> None:
    seen = f"it advertises {address}, which only its own machine can reach; from here it {seen}"
    fix = f"start it with `--host 0.0.0.0 --insecure` on its machine, or {ADVERTISE_FIX}"
    report.add(Level.FAULT, "loopback-advertised", seen, fix)


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
    except PermissionDeniedError as error:
        if same_host:
            fix = "run both as one user; until then elements travel over TCP"
            report.add(Level.WARNING, "shared-memory-unused", str(error), fix)
    except (NoWorkerError, StokerError):
        if same_host:
            seen = "it runs on this host, but in another network namespace, such as a container's"
            fix = (
                "run both in one pod or with --network host, as one user; until then elements "
                "travel over TCP"
            )
            report.add(Level.WARNING, "shared-memory-unused", seen, fix)
    else:
        if _is_same(probed, report.place) and _has_common_version(report, probed, machine):
            report.probed, report.protocol = probed, "shm"
            _soften(report)


def _soften(report: WorkerReport) -> None:
    """Turn faults into warnings: trainers on this machine read the worker by shared memory."""
    for number, finding in enumerate(report.findings):
        if finding.level is Level.FAULT:
            seen = f"{finding.seen}; from this machine it is read by shared memory"
            report.findings[number] = Finding(
                Level.WARNING, finding.name, finding.subject, seen, finding.fix
            )
