"""The command ``stoker doctor``."""

from typing import Annotated

import typer

from stoker.cli.status.commands import DEFAULT_ADDRESS, AddressArgument, seconds_of


def doctor(
    address: AddressArgument = DEFAULT_ADDRESS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Time for each step of a check.")
    ] = "3s",
) -> None:
    """Check a set-up from this machine, and print what to fix.

    Run it where a trainer or a worker will run. It looks at the dispatcher's port, at each worker's
    address, versions, clocks, shared memory and throughput; it creates no job. Exit code: 0 without
    a fault, 1 with one.
    """
    import logging

    from rich.console import Console

    from stoker.cli.doctor.examination import examine
    from stoker.cli.doctor.findings import Level
    from stoker.cli.doctor.machine import Machine
    from stoker.cli.doctor.report import count_of, print_findings, to_json
    from stoker.service.config import parse_service

    target = parse_service(address)[1]
    seconds = seconds_of("--timeout", timeout)
    # The log of connections that fail would repeat the findings.
    logging.getLogger("stoker").setLevel(logging.ERROR)
    findings = examine(target, Machine(), seconds)
    if as_json:
        typer.echo(to_json(target, findings))
    else:
        print_findings(Console(), target, findings)
    if count_of(findings, Level.FAULT):
        raise typer.Exit(1)
