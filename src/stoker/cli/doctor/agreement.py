"""Comparison of versions and clocks of all servers with those of this machine."""

from collections.abc import Sequence

from stoker.cli.doctor import findings
from stoker.cli.doctor.dispatcher import DispatcherReport
from stoker.cli.doctor.findings import Finding, Level
from stoker.cli.doctor.machine import Machine
from stoker.cli.doctor.workers import WorkerReport
from stoker.service import messages as m

CLOCK_SECONDS = 5.0
"""Difference of clocks that is reported: more than the time between the lines of one event."""

NAMED = 3
"""Most servers that a finding lists by name."""


def check_versions(
    dispatcher: DispatcherReport, workers: Sequence[WorkerReport], machine: Machine
) -> list[Finding]:
    """Return the findings about versions of stoker, Python and NumPy."""
    return [
        *_check_python([report.place for report in workers], machine),
        *_check_stoker(dispatcher, workers, machine),
    ]


def _check_python(places: Sequence[m.WorkerPlace], machine: Machine) -> list[Finding]:
    """Functions run only on workers with the versions of the process that registers them."""
    other = [place for place in places if place.versions != machine.versions]
    if not other:
        return []
    return [
        findings.workers(
            "versions-differ",
            level=Level.FAULT if len(other) == len(places) else None,
            other=len(other),
            workers=len(places),
            found=" and ".join(sorted({_text(place.versions) for place in other})),
            here=_text(machine.versions),
            names=_names([place.address for place in other]),
        )
    ]


def _text(versions: m.Versions) -> str:
    return f"Python {versions.python} with NumPy {versions.numpy}"


def _check_stoker(
    dispatcher: DispatcherReport, workers: Sequence[WorkerReport], machine: Machine
) -> list[Finding]:
    found = [("the dispatcher", dispatcher.reply.stoker)]
    found += [
        (f"worker {report.place.address}", report.probed.reply.stoker)
        for report in workers
        if report.probed is not None
    ]
    other = [(name, version) for name, version in found if version != machine.stoker]
    if not other:
        return []
    versions = " and ".join(sorted({version for _, version in other}))
    names = _names([name for name, _ in other])
    kind = "stoker-versions-differ"
    return [findings.workers(kind, "versions", versions=versions, names=names, here=machine.stoker)]


def check_clocks(dispatcher: DispatcherReport, workers: Sequence[WorkerReport]) -> list[Finding]:
    """Return the findings about clocks that differ from this machine's."""
    offsets = {"the dispatcher": _beyond_doubt(dispatcher.clock_offset, dispatcher.round_trip)}
    for report in workers:
        if report.probed is not None:
            name = f"worker {report.place.address}"
            offsets[name] = _beyond_doubt(report.probed.clock_offset, report.probed.round_trip)
    off = {name: offset for name, offset in offsets.items() if abs(offset) > CLOCK_SECONDS}
    if not off:
        return []
    largest = max(off.values(), key=abs)
    all_off = len(off) == len(offsets)
    where = "this machine, whose clock differs from all others" if all_off else "them"
    return [
        findings.workers(
            "clock-differs",
            "clocks",
            names=_names(list(off)),
            seconds=abs(largest),
            way="ahead of" if largest > 0 else "behind",
            where=where,
        )
    ]


def _beyond_doubt(offset: float, round_trip: float) -> float:
    """Return an offset, or 0 if the round trip may explain it."""
    doubt = round_trip / 2
    return 0.0 if abs(offset) <= doubt else offset


def _names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:NAMED])
    return f"{listed} and {len(names) - NAMED} others" if len(names) > NAMED else listed
