"""All checks, in order; those that need the result of one that failed are left out."""

from collections import Counter
from collections.abc import Sequence

from stoker.cli.doctor.agreement import check_clocks, check_versions
from stoker.cli.doctor.dispatcher import DispatcherReport, check_dispatcher
from stoker.cli.doctor.findings import Finding, Level
from stoker.cli.doctor.links import check_links
from stoker.cli.doctor.machine import Machine, check_machine
from stoker.cli.doctor.workers import WorkerReport, check_workers
from stoker.service import messages as m

WORKERS = "workers"


def examine(address: str, machine: Machine, timeout: float) -> list[Finding]:
    """Return the findings about the service at an address, as seen from this machine.

    Args:
        address: "host:port" of the dispatcher.
        machine: facts about this machine.
        timeout: seconds for each step of a check.
    """
    findings, dispatcher = check_dispatcher(address, machine, timeout)
    places: Sequence[m.WorkerPlace] = ()
    if dispatcher is None or any(found.level is Level.FAULT for found in findings):
        seen = "workers, versions, clocks and throughput, which need an answer of the dispatcher"
        findings.append(Finding(Level.NOT_CHECKED, "not-checked", WORKERS, seen))
    else:
        places = dispatcher.reply.workers
        findings += _check_service(dispatcher, machine, timeout)
    return findings + check_machine(machine, len(places))


def _check_service(dispatcher: DispatcherReport, machine: Machine, timeout: float) -> list[Finding]:
    places = dispatcher.reply.workers
    findings = _check_registered(places)
    workers = check_workers(places, machine, timeout)
    findings += [found for report in workers for found in report.findings]
    findings += _summary(workers)
    findings += check_versions(dispatcher, workers, machine)
    findings += check_clocks(dispatcher, workers)
    return findings + check_links(workers, timeout)


def _check_registered(places: Sequence[m.WorkerPlace]) -> list[Finding]:
    draining = [place.address for place in places if place.draining]
    if not places:
        seen = "no worker is registered, so no trainer gets an element"
        fix = "start `stoker worker --dispatcher ADDRESS`, and look at the log of workers that run"
        return [Finding(Level.FAULT, "no-workers", WORKERS, seen, fix)]
    if draining:
        level = Level.FAULT if len(draining) == len(places) else Level.WARNING
        seen = f"{len(draining)} of {len(places)} workers will stop and get no more tasks: "
        fix = "start other workers, unless these are to be replaced"
        return [Finding(level, "draining", WORKERS, seen + ", ".join(draining[:3]), fix)]
    return []


def _summary(workers: Sequence[WorkerReport]) -> list[Finding]:
    by = Counter(report.protocol for report in workers if report.protocol)
    if not by:
        levels = [found.level for report in workers for found in report.findings]
        if not workers or Level.FAULT in levels:
            return []
        seen = "no worker was found that can be read from here"
        fix = "repeat this with another `--timeout`, and look at the logs of the workers"
        return [Finding(Level.FAULT, "none-readable", WORKERS, seen, fix)]
    transports = ", ".join(f"{count} by {name}" for name, count in sorted(by.items()))
    seen = f"{by.total()} of {len(workers)} can be read from here: {transports}"
    if "grpc" in by:
        seen += "; those by grpc only if `distribute(data_transfer_protocol='grpc')` names it"
    return [Finding(Level.OK, "workers", WORKERS, seen)]
