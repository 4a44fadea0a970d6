"""Comparison of versions and clocks of all servers with those of this machine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stoker.cli.doctor.answers import Answer
from stoker.cli.doctor.findings import Finding, Level, finding
from stoker.cli.doctor.machine import Machine
from stoker.service import messages as m

CLOCK_SECONDS = 5.0
"""Difference of clocks that is reported: more than the time between the lines of one event."""

NAMED = 3
"""Most servers that a finding lists by name."""

Answers = Mapping[str, Answer[Any]]
"""The answers of servers, by the names of the servers in findings."""


def check_python(places: Sequence[m.WorkerPlace], machine: Machine) -> Iterator[Finding]:
    """Yield a finding if workers have other versions of Python and NumPy than this machine."""
    # Functions run only on workers with the versions of the process that registers them.
    other = [place for place in places if place.versions != machine.versions]
    if other:
        yield finding(
            "workers",
            "versions-differ",
            level=Level.FAULT if len(other) == len(places) else None,
            other=len(other),
            workers=len(places),
            found=" and ".join(sorted({_text(place.versions) for place in other})),
            here=_text(machine.versions),
            names=_names([place.address for place in other]),
        )


def _text(versions: m.Versions) -> str:
    return f"Python {versions.python} with NumPy {versions.numpy}"


def check_stoker(answers: Answers, machine: Machine) -> Iterator[Finding]:
    """Yield a finding if servers have other versions of stoker than this machine."""
    found = {name: answer.reply.stoker for name, answer in answers.items()}
    other = {name: version for name, version in found.items() if version != machine.stoker}
    if other:
        yield finding(
            "workers",
            "stoker-versions-differ",
            "versions",
            versions=" and ".join(sorted({*other.values()})),
            names=_names([*other]),
            here=machine.stoker,
        )


def check_clocks(answers: Answers) -> Iterator[Finding]:
    """Yield a finding if clocks differ from this machine's."""
    off = {
        name: answer.clock_offset
        for name, answer in answers.items()
        # A server may have read its clock at any time of the round trip.
        if abs(answer.clock_offset) > max(CLOCK_SECONDS, answer.round_trip / 2)
    }
    if off:
        largest = max(off.values(), key=abs)
        all_off = len(off) == len(answers)
        yield finding(
            "workers",
            "clock-differs",
            "clocks",
            names=_names([*off]),
            seconds=abs(largest),
            way="ahead of" if largest > 0 else "behind",
            where="this machine, whose clock differs from all others" if all_off else "them",
        )


def _names(names: Sequence[str]) -> str:
    # All names of a large service would fill the screen.
    listed = ", ".join(names[:NAMED])
    return f"{listed} and {len(names) - NAMED} others" if len(names) > NAMED else listed
