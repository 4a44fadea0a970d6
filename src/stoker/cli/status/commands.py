"""The commands that show a running service; other modules of this package implement them."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from stoker.cli.commands import TyperApp, fail

ADDRESS_VARIABLE = "STOKER_DISPATCHER_ADDRESS"


def check_address(context: typer.Context, parameter: typer.CallbackParam, address: str) -> str:
    """Return the dispatcher's address; refuse another text."""
    from stoker.errors import StokerError
    from stoker.service.config import parse_service

    if context.resilient_parsing:  # for the shell's completion
        return address
    name = parameter.name or ""
    try:
        parse_service(address, name)
    except StokerError as error:
        # The error names the argument that the user typed, or the variable.
        source = context.get_parameter_source(name)
        is_variable = source is not None and source.name == "ENVIRONMENT"
        fail(f"{ADDRESS_VARIABLE}: {error}" if is_variable else str(error), 2)
    return address


def seconds_of(flag: str, text: str) -> float:
    """Return the seconds of a flag's time; refuse another text."""
    from stoker.cli.options.units import OptionError, parse_seconds

    try:
        return parse_seconds(text)
    except OptionError as error:
        fail(f"{flag}: {error}", 2)


AddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="The dispatcher's address, HOST or HOST:PORT; port 5050 if it is left out.",
        envvar=ADDRESS_VARIABLE,
        callback=check_address,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON, as docs/observing.md describes it.")
]
DEFAULT_ADDRESS = "localhost:5050"
_T = TypeVar("_T")


def _show(found: _T, show: Callable[[_T], None], *, as_json: bool) -> None:
    """Print structs of `stoker.service.status`: all fields as JSON, or what people want to know."""
    import msgspec

    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        show(found)


def status(address: AddressArgument = DEFAULT_ADDRESS, as_json: JsonOption = False) -> None:
    """Show workers, jobs, epochs, clients, rates and losses of a running service."""
    from stoker.cli.status import asking, view

    _show(asking.get_status(address), view.print_status, as_json=as_json)


def top(
    address: AddressArgument = DEFAULT_ADDRESS,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Time between two frames, such as 2s or 500ms.")
    ] = "2s",
) -> None:
    """Show the state of a running service live, until q or Ctrl-C."""
    seconds = seconds_of("--interval", interval)

    from stoker.cli.status.top import run_top

    run_top(address, seconds)


jobs = TyperApp(help="List, describe and cancel jobs.")
datasets = TyperApp(help="List, describe and forget datasets.")


def _not_empty(name: str) -> str:
    # An empty name would be all jobs or datasets for the dispatcher.
    if not name:
        raise typer.BadParameter("it must not be empty")
    return name


JobArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The job's name.", callback=_not_empty)
]
DatasetArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The dataset's id.", callback=_not_empty)
]


@jobs.command("list")
def list_jobs(address: AddressArgument = DEFAULT_ADDRESS, as_json: JsonOption = False) -> None:
    """List the jobs with their epochs."""
    from stoker.cli.status import asking, view

    _show(asking.get_status(address).jobs, view.print_jobs, as_json=as_json)


@jobs.command("describe")
def describe_job(
    name: JobArgument, address: AddressArgument = DEFAULT_ADDRESS, as_json: JsonOption = False
) -> None:
    """Show a job with its epochs, tasks and clients."""
    from stoker.cli.status import asking, view

    # The dispatcher answers an unknown name with an error.
    [found] = asking.get_status(address, job=name).jobs
    _show(found, view.print_job, as_json=as_json)


@jobs.command("cancel")
def cancel_job(name: JobArgument, address: AddressArgument = DEFAULT_ADDRESS) -> None:
    """Remove a job: its tasks stop, and the next read of each of its clients raises an error."""
    from stoker.cli.status.asking import request
    from stoker.service.messages import CancelJob

    request(address, CancelJob(name))


@datasets.command("list")
def list_datasets(address: AddressArgument = DEFAULT_ADDRESS, as_json: JsonOption = False) -> None:
    """List the registered datasets."""
    from stoker.cli.status import asking, view

    _show(asking.get_status(address).datasets, view.print_datasets, as_json=as_json)


@datasets.command("describe")
def describe_dataset(
    dataset_id: DatasetArgument,
    address: AddressArgument = DEFAULT_ADDRESS,
    as_json: JsonOption = False,
) -> None:
    """Show the nodes of a dataset, its element_spec, and the jobs that read it."""
    from stoker.cli.status import asking, view

    [found] = asking.get_status(address, dataset_id=dataset_id).datasets
    _show(found, view.print_dataset, as_json=as_json)


@datasets.command("forget")
def forget_dataset(dataset_id: DatasetArgument, address: AddressArgument = DEFAULT_ADDRESS) -> None:
    """Remove a registered dataset that no job reads."""
    from stoker.cli.status.asking import request
    from stoker.service.messages import ForgetDataset

    request(address, ForgetDataset(dataset_id))


def drain(
    workers: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKER...", help="Addresses of workers, as `stoker status` shows them."
        ),
    ],
    dispatcher_address: Annotated[
        str,
        typer.Option(
            metavar="HOST[:PORT]",
            help="The dispatcher's address; port 5050 if it is left out.",
            envvar=ADDRESS_VARIABLE,
            callback=check_address,
        ),
    ] = DEFAULT_ADDRESS,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the workers have left.")] = False,
) -> None:
    """Let workers begin nothing new, deliver what they have computed, and leave."""
    from stoker.cli.status.draining import drain_workers

    drain_workers(dispatcher_address, workers, wait=wait)
