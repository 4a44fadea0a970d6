"""The commands and their options; the other modules of this package implement them."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from stoker.cli import status_commands
from stoker.cli.doctor.command import doctor
from stoker.cli.failure import fail
from stoker.errors import StokerError

app = typer.Typer(
    help="The input-data service that keeps accelerators fed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

HostOption = Annotated[str, typer.Option(help="Address to listen on.")]
LogLevelOption = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option(help="Least level of log lines.")
]
LogFormatOption = Annotated[
    Literal["text", "json"], typer.Option(help="Format of the log on standard error.")
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow an address off this machine, without encryption or authentication.",
    ),
]


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"stoker {version('stoker')}")
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


@app.command()
def dispatcher(
    host: HostOption = "localhost",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.")] = 5050,
    insecure: InsecureOption = False,
    work_dir: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Directory or URL of a journal, from which a restarted dispatcher goes on.",
            show_default=False,
        ),
    ] = None,
    worker_addresses: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS,...",
            help="The workers of static sharding, each HOST or HOST:PORT, in the order of their "
            "shards; others are refused. May be repeated.",
            show_default=False,
        ),
    ] = None,
    dispatcher_patience_ms: Annotated[
        int,
        typer.Option(min=1, help="Time for which clients wait for a dispatcher with a journal."),
    ] = 600_000,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
) -> None:
    """Start a dispatcher, which coordinates workers and trainers and runs no user code."""
    from stoker.cli import servers
    from stoker.service.logs import LogOptions

    servers.run_dispatcher(
        host=host,
        port=port,
        insecure=insecure,
        work_dir=work_dir,
        worker_addresses=[x for each in worker_addresses or () for x in each.split(",")],
        dispatcher_patience_ms=dispatcher_patience_ms,
        log=LogOptions(log_level, log_format),
    )


@app.command()
def worker(
    dispatcher: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The dispatcher's address.", show_default=False)
    ],
    host: HostOption = "localhost",
    port: Annotated[
        int, typer.Option(help="Port of the first process; 0: any free one for each.")
    ] = 0,
    processes: Annotated[
        int, typer.Option(min=1, help="Worker processes; more than one for pure-Python functions.")
    ] = 1,
    tags: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Tag of the workers, such as COLOCATED; may be repeated."),
    ] = None,
    insecure: InsecureOption = False,
    data_transfer_protocol: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Serve elements by 'tcp' or 'grpc' only; default: TCP and shared memory.",
            show_default=False,
        ),
    ] = None,
    shared_memory_bytes: Annotated[
        int,
        typer.Option(min=0, help="Memory that each process may share with trainers on this host."),
    ] = 256 << 20,
    cross_trainer_cache_bytes: Annotated[
        int,
        typer.Option(
            min=1,
            help="Memory of each task that is read through a cross-trainer cache.",
        ),
    ] = 10 << 30,
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds after SIGTERM in which trainers may read what is computed; a second "
            "SIGTERM ends them.",
        ),
    ] = 25.0,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
) -> None:
    """Start worker processes and restart each that dies."""
    from stoker.cli import servers
    from stoker.service.logs import LogOptions

    servers.run_worker(
        dispatcher=dispatcher,
        host=host,
        port=port,
        processes=processes,
        tags=tags or [],
        insecure=insecure,
        data_transfer_protocol=data_transfer_protocol,
        shared_memory_bytes=shared_memory_bytes,
        cross_trainer_cache_bytes=cross_trainer_cache_bytes,
        grace=grace,
        log=LogOptions(log_level, log_format),
    )


app.command()(status_commands.status)
app.command()(status_commands.top)
app.command()(status_commands.drain)
app.command()(doctor)
app.add_typer(status_commands.jobs, name="jobs")
app.add_typer(status_commands.datasets, name="datasets")


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
        from stoker.cli.demo.scenario import DemoError, run
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        fail("the demo needs Pillow: pip install 'stoker[demo]'")
    try:
        run(directory, Console())
    except (DemoError, StokerError) as error:
        fail(str(error))
