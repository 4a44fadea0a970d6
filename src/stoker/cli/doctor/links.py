"""Round trip and throughput between workers and this machine."""

from collections.abc import Sequence

from stoker.cli.doctor.data_plane import measure_throughput
from stoker.cli.doctor.findings import Finding, Level
from stoker.cli.doctor.workers import WorkerReport
from stoker.errors import StokerError

MEASURED = 4
"""Most workers whose throughput is measured: the links of one machine are usually alike."""

SLOW_BYTES = 50e6
"""Bytes per second below which a link is slow: less than half of gigabit Ethernet."""

LONG_SECONDS = 0.02
"""Round trip from which a worker is far away: within a data center it is below 1 ms."""

NAMES = {"shm": "shared memory", "tcp": "TCP", "grpc": "gRPC"}


def check_links(workers: Sequence[WorkerReport], timeout: float) -> list[Finding]:
    """Return the findings about the links to workers that this machine can read, one at a time.

    Args:
        workers: those that were checked.
        timeout: seconds for each measurement.
    """
    readable = [report for report in workers if report.probed is not None]
    findings = [found for report in readable if (found := _check_round_trip(report))]
    for report in readable[:MEASURED]:
        findings += _check_throughput(report, report.protocol, timeout)
    return findings


def _check_round_trip(report: WorkerReport) -> Finding | None:
    assert report.probed is not None
    seconds = report.probed.round_trip
    if seconds < LONG_SECONDS:
        return None
    return report.finding("long-round-trip", milliseconds=seconds * 1e3)


def _check_throughput(report: WorkerReport, protocol: str, timeout: float) -> list[Finding]:
    assert report.probed is not None
    address = report.place.data_transfer_addresses[protocol]
    try:
        rate = measure_throughput(protocol, address, timeout, report.probed.round_trip)
    except TimeoutError:
        text = f"64 KiB did not arrive over {NAMES[protocol]} in {timeout:g} s"
        return [report.finding("slow-link", rate=text)]
    except StokerError as error:
        return _check_broken(report, protocol, timeout, error)
    megabytes = rate / 1e6
    text = f"{megabytes:,.{0 if megabytes >= 10 else 2}f} MB/s over {NAMES[protocol]}"
    if rate < SLOW_BYTES:
        return [report.finding("slow-link", rate=text)]
    milliseconds = report.probed.round_trip * 1e3
    return [report.finding("throughput", rate=text, milliseconds=milliseconds)]


def _check_broken(
    report: WorkerReport, protocol: str, timeout: float, error: StokerError
) -> list[Finding]:
    """Return the findings after a connection broke; trainers then read over the network."""
    link = NAMES[protocol]
    if protocol != "shm":
        return [report.finding("connection-breaks", link=link, error=error)]
    level = None if report.network_protocol else Level.FAULT
    findings = [report.finding("shared-memory-fails", level, link=link, error=error)]
    if report.network_protocol:
        findings += _check_throughput(report, report.network_protocol, timeout)
    return findings
