"""Round trip and throughput between workers and this machine."""

from collections.abc import Iterator, Sequence

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


def check_links(workers: Sequence[WorkerReport], timeout: float) -> Iterator[Finding]:
    """Yield the findings about the links to workers that this machine can read, one at a time.

    Args:
        workers: those that were checked.
        timeout: seconds for each measurement.
    """
    readable = [report for report in workers if report.answer is not None]
    for report in readable:
        if report.round_trip >= LONG_SECONDS:
            yield report.finding("long-round-trip", milliseconds=report.round_trip * 1e3)
    # In sequence: the links of a machine share the network of the machine.
    for report in readable[:MEASURED]:
        yield from _check_throughput(report, report.protocol, timeout)


def _check_throughput(report: WorkerReport, protocol: str, timeout: float) -> Iterator[Finding]:
    address, link = report.place.data_transfer_addresses[protocol], NAMES[protocol]
    try:
        rate = measure_throughput(protocol, address, timeout, report.round_trip)
    except TimeoutError:
        text = f"64 KiB did not arrive over {link} in {timeout:g} s"
        yield report.finding("slow-link", rate=text)
    except StokerError as error:
        if protocol != "shm":
            yield report.finding("connection-breaks", link=link, error=error)
            return
        level = None if report.network_protocol else Level.FAULT
        yield report.finding("shared-memory-fails", level, link=link, error=error)
        if report.network_protocol:  # trainers then read over the network
            yield from _check_throughput(report, report.network_protocol, timeout)
    else:
        megabytes = rate / 1e6
        text = f"{megabytes:,.{0 if megabytes >= 10 else 2}f} MB/s over {link}"
        name = "slow-link" if rate < SLOW_BYTES else "throughput"
        yield report.finding(name, rate=text, milliseconds=report.round_trip * 1e3)
