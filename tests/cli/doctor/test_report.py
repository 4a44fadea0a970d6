"""Output of many findings."""

import io

from rich.console import Console
from rich.text import Text

from stoker.cli.doctor.findings import Finding, Level
from stoker.cli.doctor.report import SHOWN, print_findings


def printed(findings):
    output = io.StringIO()
    print_findings(Console(file=output, width=40), "localhost:5050", findings)
    return output.getvalue().splitlines()


def test_long_findings_stay_on_one_line():
    lines = printed([Finding(Level.FAULT, "port-dropped", "worker a:1", "x" * 200, "y" * 200)])
    assert lines == [
        "dispatcher address: localhost:5050",
        "",
        f"fault        worker a:1: {'x' * 200} (port-dropped)",
        f"             fix: {'y' * 200}",
        "",
        "1 fault, no warnings",
    ]


def test_a_terminal_wraps_findings_at_words():
    output = io.StringIO()
    seen = "cannot be reached at 10.0.0.7:41943, which it advertises"
    finding = Finding(Level.FAULT, "port-dropped", "worker a:1", seen, "open the port")
    console = Console(file=output, width=40, height=25, force_terminal=True, no_color=True)
    print_findings(console, "localhost:5050", [finding])
    lines = [line.rstrip() for line in Text.from_ansi(output.getvalue()).plain.splitlines()]
    assert lines[2:-2] == [
        "fault        worker a:1: cannot be",
        "             reached at 10.0.0.7:41943,",
        "             which it advertises",
        "             (port-dropped)",
        "             fix: open the port",
    ]


def test_findings_of_one_kind_are_counted_after_a_few():
    lines = printed(
        [Finding(Level.WARNING, "slow-link", f"worker {n}", "slow") for n in range(SHOWN + 3)]
    )
    assert [line for line in lines if "slow (slow-link)" in line] == lines[2 : 2 + SHOWN]
    assert lines[2 + SHOWN] == "             and 3 more of warning slow-link"
    assert lines[-1] == f"no faults, {SHOWN + 3} warnings"
