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
    return report.finding(
        Level.WARNING,
        "long-round-trip",
        f"a round trip takes {seconds * 1e3:.0f} ms; within a data center it is below 1 ms",
        "run workers in the region and zone of the trainer, or look for a congested link",
    )


def _check_throughput(report: WorkerReport, protocol: str, timeout: float) -> list[Finding]:
    assert report.probed is not None
    address = report.place.data_transfer_addresses[protocol]
    try:
        rate = measure_throughput(protocol, address, timeout, report.probed.round_trip)
    except TimeoutError:
        return [_slow(report, f"64 KiB did not arrive over {NAMES[protocol]} in {timeout:g} s")]
    except StokerError as error:
        return _check_broken(report, protocol, timeout, error)
    megabytes = rate / 1e6
    seen = f"{megabytes:,.{0 if megabytes >= 10 else 2}f} MB/s over {NAMES[protocol]}"
    if rate < SLOW_BYTES:
        return [_slow(report, seen)]
    seen += f", a round trip of {report.probed.round_trip * 1e3:.1f} ms"
    return [report.finding(Level.OK, "throughput", seen)]


def _check_broken(
    report: WorkerReport, protocol: str, timeout: float, error: StokerError
) -> list[Finding]:
    """Return the findings after a connection broke; trainers then read over the network."""
    seen = f"the connection over {NAMES[protocol]} broke while it was measured: {error}"
    if protocol != "shm":
        fix = "look at the worker's log, and for a proxy or a load balancer between"
        return [report.finding(Level.FAULT, "connection-breaks", seen, fix)]
    fix = (
        "raise the limits of memory (of the container, `ulimit -v`) and open files (`ulimit -n`) "
        "where the trainer runs; until then elements travel over the network"
    )
    level = Level.WARNING if report.network_protocol else Level.FAULT
    findings = [report.finding(level, "shared-memory-fails", seen, fix)]
    if report.network_protocol:
        findings += _check_throughput(report, report.network_protocol, timeout)
    return findings


def _slow(report: WorkerReport, seen: str) -> Finding:
    seen += "; a batch of 32 images of 224 x 224 has 4.8 MB"
    fix = (
        "use workers in the zone of the trainer and a faster link; compression (the default "
        '"AUTO") and smaller dtypes, such as uint8 for images, reduce the bytes'
    )
    return report.finding(Level.WARNING, "slow-link", seen, fix)
