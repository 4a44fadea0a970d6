"""All checks, in order; those that need the result of one that failed are left out."""

from collections import Counter
from collections.abc import Sequence

from stoker.cli.doctor import findings
from stoker.cli.doctor.agreement import check_clocks, check_versions
from stoker.cli.doctor.dispatcher import DispatcherReport, check_dispatcher
from stoker.cli.doctor.findings import Finding, Level
from stoker.cli.doctor.links import check_links
from stoker.cli.doctor.machine import Machine, check_machine
from stoker.cli.doctor.workers import WorkerReport, check_workers
from stoker.service import messages as m


def examine(address: str, machine: Machine, timeout: float) -> list[Finding]:
    """Return the findings about the service at an address, as seen from this machine.

    Args:
        address: "host:port" of the dispatcher.
        machine: facts about this machine.
        timeout: seconds for each step of a check.
    """
    found, dispatcher = check_dispatcher(address, machine, timeout)
    places: Sequence[m.WorkerPlace] = ()
    if dispatcher is None or any(each.level is Level.FAULT for each in found):
        why = "workers, versions, clocks and throughput, which need an answer of the dispatcher"
        found.append(findings.workers("not-checked", why=why))
    else:
        places = dispatcher.reply.workers
        found += _check_service(dispatcher, machine, timeout)
    return found + check_machine(machine, len(places))


def _check_service(dispatcher: DispatcherReport, machine: Machine, timeout: float) -> list[Finding]:
    places = dispatcher.reply.workers
    workers = check_workers(places, machine, timeout)
    return [
        *_check_registered(places),
        *(found for report in workers for found in report.findings),
        *_summary(workers),
        *check_versions(dispatcher, workers, machine),
        *check_clocks(dispatcher, workers),
        *check_links(workers, timeout),
    ]


def _check_registered(places: Sequence[m.WorkerPlace]) -> list[Finding]:
    draining = [place.address for place in places if place.draining]
    if not places:
        return [findings.workers("no-workers")]
    if not draining:
        return []
    level = Level.FAULT if len(draining) == len(places) else None
    names = ", ".join(draining[:3])
    number = f"{len(draining)} of {len(places)}"
    return [findings.workers("draining", level=level, number=number, names=names)]


def _summary(workers: Sequence[WorkerReport]) -> list[Finding]:
    by = Counter(report.protocol for report in workers if report.protocol)
    if not by:
        levels = [found.level for report in workers for found in report.findings]
        failed = not workers or Level.FAULT in levels
        return [] if failed else [findings.workers("none-readable")]
    transports = ", ".join(f"{count} by {name}" for name, count in sorted(by.items()))
    if "grpc" in by:
        transports += "; those by grpc only if `distribute(data_transfer_protocol='grpc')` names it"
    number = f"{by.total()} of {len(workers)}"
    return [findings.workers("workers", number=number, transports=transports)]
