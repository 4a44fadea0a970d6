"""Comparison of versions and clocks of all servers with those of this machine."""

from collections.abc import Sequence

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
    level = Level.FAULT if len(other) == len(places) else Level.WARNING
    found = sorted({_text(place.versions) for place in other})
    seen = (
        f"{len(other)} of {len(places)} workers run {' and '.join(found)}, this machine "
        f"{_text(machine.versions)}; functions of a dataset that is registered here run on the "
        f"others only ({_names([place.address for place in other])})"
    )
    fix = "install the same Python minor and NumPy major version on trainers and workers"
    return [Finding(level, "versions-differ", "workers", seen, fix)]


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
    seen = (
        f"stoker {versions} on {_names([name for name, _ in other])}, {machine.stoker} here; a "
        "service needs one version"
    )
    fix = "stop all servers and trainers of the service, and install one stoker version everywhere"
    return [Finding(Level.WARNING, "stoker-versions-differ", "versions", seen, fix)]


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
    seen = (
        f"{_names(list(off))}: up to {abs(largest):.0f} s "
        f"{'ahead of' if largest > 0 else 'behind'} this machine's clock; stoker compares no "
        "clocks, but log lines of several machines cannot be put in order, and object stores "
        "refuse requests that are 15 minutes off"
    )
    where = "this machine, whose clock differs from all others" if all_off else "them"
    fix = f"synchronize the clock of {where}: chrony, systemd-timesyncd or another NTP client"
    return [Finding(Level.WARNING, "clock-differs", "clocks", seen, fix)]


def _beyond_doubt(offset: float, round_trip: float) -> float:
    """Return an offset, or 0 if the round trip may explain it."""
    doubt = round_trip / 2
    return 0.0 if abs(offset) <= doubt else offset


def _names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:NAMED])
    return f"{listed} and {len(names) - NAMED} others" if len(names) > NAMED else listed
