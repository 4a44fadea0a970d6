"""All checks, in order; those that need the result of one that failed are left out."""

from collections import Counter
from collections.abc import Iterator, Sequence

from stoker.cli.doctor.agreement import Answers, check_clocks, check_python, check_stoker
from stoker.cli.doctor.answers import Answer
from stoker.cli.doctor.dispatcher import check_dispatcher
from stoker.cli.doctor.findings import Finding, Level, finding
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
    if dispatcher is None:
        why = "workers, versions, clocks and throughput, which need an answer of the dispatcher"
        service, workers = [finding("workers", "not-checked", why=why)], 0
    else:
        service = [*_check_service(dispatcher, machine, timeout)]
        workers = len(dispatcher.reply.workers)
    return [found, *service, *check_machine(machine, workers)]


def _check_service(
    dispatcher: Answer[m.ProbeReply], machine: Machine, timeout: float
) -> Iterator[Finding]:
    places = dispatcher.reply.workers
    yield from _check_registered(places)
    workers = check_workers(places, machine, timeout)
    for report in workers:
        yield from report.findings
    yield from _summary(workers)
    answers: Answers = {"the dispatcher": dispatcher} | {
        report.name: report.answer for report in workers if report.answer is not None
    }
    yield from check_python(places, machine)
    yield from check_stoker(answers, machine)
    yield from check_clocks(answers)
    # Last, since the throughput takes the longest and loads the workers.
    yield from check_links(workers, timeout)


def _check_registered(places: Sequence[m.WorkerPlace]) -> Iterator[Finding]:
    draining = [place.address for place in places if place.draining]
    if not places:
        yield finding("workers", "no-workers")
    elif draining:
        level = Level.FAULT if len(draining) == len(places) else None
        number, names = f"{len(draining)} of {len(places)}", ", ".join(draining[:3])
        yield finding("workers", "draining", level=level, number=number, names=names)


def _summary(workers: Sequence[WorkerReport]) -> Iterator[Finding]:
    by = Counter(report.protocol for report in workers if report.protocol)
    if by:
        transports = ", ".join(f"{count} by {name}" for name, count in sorted(by.items()))
        if "grpc" in by:
            only_if = "those by grpc only if `distribute(data_transfer_protocol='grpc')` names it"
            transports += f"; {only_if}"
        number = f"{by.total()} of {len(workers)}"
        yield finding("workers", "workers", number=number, transports=transports)
    # Otherwise a fault of each worker says why; without a fault no worker was checked in time.
    elif workers and Level.FAULT not in {x.level for report in workers for x in report.findings}:
        yield finding("workers", "none-readable")
