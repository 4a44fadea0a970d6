"""Output of the findings: a list for people, or JSON."""

from collections import Counter

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stoker.cli.doctor.findings import Finding, Level
from stoker.service.plurals import plural

STYLES = {
    Level.OK: "green",
    Level.WARNING: "yellow",
    Level.FAULT: "bold red",
    Level.NOT_CHECKED: "dim",
}

SHOWN = 5
"""Most findings of one name that are printed; JSON has all."""


def print_findings(console: Console, address: str, findings: list[Finding]) -> None:
    """Print a list of the findings and a line with their numbers."""
    console.print(f"dispatcher address: {address}\n", highlight=False)
    printed: Counter[tuple[Level, str]] = Counter()
    for finding in findings:
        kind = (finding.level, finding.name)
        printed[kind] += 1
        # A service may have a thousand workers with one fault.
        if printed[kind] <= SHOWN:
            _print(console, finding)
    for (level, name), count in printed.items():
        if count > SHOWN:
            # Padded as the texts of findings, behind their level.
            more = Text(f"{'':13}and {count - SHOWN} more of {level.value} {name}")
            console.print(more, soft_wrap=True)
    faults, warnings = count_of(findings, Level.FAULT), count_of(findings, Level.WARNING)
    numbers = f"{_number(faults, 'fault')}, {_number(warnings, 'warning')}"
    console.print(f"\n{numbers}", highlight=False)


def _print(console: Console, finding: Finding) -> None:
    line = Text(f"{finding.level.value:12} ", style=STYLES[finding.level])
    line.append(f"{finding.subject}: {finding.seen}", style="default")
    if finding.level in (Level.WARNING, Level.FAULT):
        line.append(f" ({finding.name})", style="dim")
    _print_line(console, line)
    if finding.fix:
        _print_line(console, Text(f"{'':13}fix: {finding.fix}"))


def _print_line(console: Console, line: Text) -> None:
    """Print a line, which a terminal wraps at words; elsewhere a line is a finding, for grep."""
    # Piped into grep, a finding must be one line with its name.
    if not console.is_terminal:
        console.print(line, soft_wrap=True)
        return
    label, text = line.divide([13])
    found = Table.grid()
    found.add_column(width=13, no_wrap=True)
    found.add_column(overflow="fold")
    found.add_row(label, text)
    console.print(found)


def _number(count: int, noun: str) -> str:
    return plural(count, noun) if count else f"no {noun}s"


def to_json(address: str, findings: list[Finding]) -> str:
    """Return the findings and their numbers as one JSON object."""
    report = {
        "address": address,
        "faults": count_of(findings, Level.FAULT),
        "warnings": count_of(findings, Level.WARNING),
        "findings": findings,
    }
    return msgspec.json.format(msgspec.json.encode(report)).decode()


def count_of(findings: list[Finding], level: Level) -> int:
    """Return the number of findings of a level."""
    return sum(finding.level is level for finding in findings)
