"""Find the stage of the workers' pipelines that limits them."""

from collections.abc import Iterable, Sequence

import msgspec

from stoker.dataset.reports.advice import WorkerMachine, advice
from stoker.dataset.reports.slow_stage import find_slow_stage
from stoker.dataset.streams.measure.bottleneck import Bottleneck, evidence_text
from stoker.dataset.streams.measure.stage_report import StageReport, combined
from stoker.service.client.measure.reading import Reading
from stoker.service.client.measure.task_reading import TaskReading
from stoker.service.plurals import plural
from stoker.service.task_evidence import TaskEvidence
from stoker.wire.addresses import is_loopback, parse_address

BUSY = 0.5
"""Fraction of its time from which a task computes, waits for room or waits for splits "mostly"."""


def percent(part: float, whole: float) -> str:
    """Return a fraction of at most 1 as "87%"."""
    return f"{min(1.0, part / whole) if whole > 0 else 0.0:.0%}"


def slow_workers(
    reading: Reading, running: Sequence[tuple[TaskReading, TaskEvidence]]
) -> Bottleneck | None:
    """Return the slowest stage of the workers, if their pipelines compute most of the time."""
    # A task that has computed everything is no limit any more, unless all have.
    computing = [(task, x) for task, x in running if not x.ended] or list(running)
    evidence = [x for _, x in computing]
    seconds, busy = sum(x.seconds for x in evidence), sum(x.computing for x in evidence)
    if not seconds or busy < BUSY * seconds:
        return None
    where = f"{plural(len(computing), 'worker')} computed for {percent(busy, seconds)} of that time"
    # A worker that has computed everything still has its process, and the next epoch.
    machine = _roomiest(running)
    slow = find_slow_stage(summed(x.stages for x in evidence), seconds)
    if slow is None:
        sentence = f"The workers limit training: {reading.waited_text}, and {where}; "
        return Bottleneck("worker", f"{sentence}{machine.more_workers}.")
    return reading.limited_by(
        "source" if slow.is_source else "worker",
        "The source" if slow.is_source else "The pipeline on the workers",
        f"and {where}: {evidence_text(slow)}",
        advice(slow, machine),
        site=slow.report.site,
        worker=computing[0][0].worker if len(computing) == 1 else "",
    )


def _roomiest(running: Sequence[tuple[TaskReading, TaskEvidence]]) -> WorkerMachine:
    """Return the machine with the most cores that no process of these workers uses."""
    machines: dict[str, WorkerMachine] = {}
    # By host, because worker processes of one host share the cores.
    for worker, cores in {task.worker: x.cores for task, x in running}.items():
        host, _ = parse_address(worker)
        others = machines[host].processes if host in machines else 0
        machines[host] = WorkerMachine(host, others + 1, cores, is_loopback(host))
    return max(machines.values(), key=lambda machine: machine.cores - machine.processes)


def summed(stages: Iterable[Sequence[StageReport]]) -> list[StageReport]:
    """Return the reports of several workers as those of one, which read for the sum of the times.

    The times per element of a stage are those of the worker that spent most time in it.
    """
    totals: dict[int, StageReport] = {}
    for stage in (stage for reports in stages for stage in reports):
        known = totals.get(stage.number)
        totals[stage.number] = stage if known is None else _sum(known, stage)
    return [totals[number] for number in sorted(totals)]


def _sum(one: StageReport, other: StageReport) -> StageReport:
    longest, shorter = sorted((one, other), key=lambda stage: stage.busy, reverse=True)
    occupancies = [x.occupancy for x in (one, other) if x.occupancy is not None]
    return msgspec.structs.replace(
        combined(longest, shorter),
        occupancy=sum(occupancies) / len(occupancies) if occupancies else None,
        parallel=max(one.parallel, other.parallel),
    )
