"""The commands and their options; the other modules of this package implement them."""

from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.commands import TyperApp, fail
from stoker.cli.options.flags import NOTES, with_options
from stoker.cli.options.values import Values
from stoker.cli.status import commands as status_commands
from stoker.version import VERSION

app = TyperApp(
    help="The input-data service that keeps accelerators fed.", pretty_exceptions_enable=False
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"stoker {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Run the input-data service that keeps accelerators fed."""


@app.command(epilog=NOTES)
@with_options("dispatcher")
def dispatcher(values: Values) -> None:
    """Start a dispatcher, which coordinates workers and trainers and runs no user code."""
    from stoker.cli import servers

    servers.run_dispatcher(values)


@app.command(epilog=NOTES)
@with_options("worker")
def worker(values: Values) -> None:
    """Start worker processes and restart each that dies."""
    from stoker.cli import servers

    servers.run_worker(values)


app.command()(status_commands.status)
app.command()(status_commands.top)
app.command()(status_commands.drain)
app.add_typer(status_commands.jobs, name="jobs")
app.add_typer(status_commands.datasets, name="datasets")


@app.command()
def doctor(
    address: status_commands.AddressArgument = status_commands.DEFAULT_ADDRESS,
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
    seconds = status_commands.seconds_of("--timeout", timeout)
    # The log of connections that fail would repeat the findings.
    logging.getLogger("stoker").setLevel(logging.ERROR)
    findings = examine(target, Machine(), seconds)
    if as_json:
        typer.echo(to_json(target, findings))
    else:
        print_findings(Console(), target, findings)
    if count_of(findings, Level.FAULT):
        raise typer.Exit(1)


@app.command()
def demo(
    directory: Annotated[
        Path, typer.Option(help="Directory of the images, which are created once.")
    ] = Path(".demo"),
) -> None:
    """Train on JPEG files, first alone, then through a dispatcher and two workers."""
    import logging

    from rich.console import Console

    # The demo kills a worker and prints that itself; a log line would break its progress line.
    logging.getLogger("stoker").setLevel(logging.ERROR)
    try:
        from stoker.cli.demo.scenario import run
    except ModuleNotFoundError as error:
        # Only Pillow belongs to the extra; without another module the installation is broken.
        if error.name != "PIL":
            raise
        fail("the demo needs Pillow: pip install 'stoker[demo]'")
    run(directory, Console())
