"""The commands that show a running service; other modules of this package implement them."""

from typing import Annotated

import typer

AddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="The dispatcher's address, HOST:PORT.",
        envvar="STOKER_DISPATCHER_ADDRESS",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON, as docs/observing.md describes it.")
]
DEFAULT_ADDRESS = "localhost:5050"


def status(address: AddressArgument = DEFAULT_ADDRESS, as_json: JsonOption = False) -> None:
    """Show workers, jobs, epochs, clients, rates and losses of a running service."""
    from stoker.cli.asking import status_or_fail
    from stoker.cli.status_json import print_json
    from stoker.cli.status_view import print_status

    found = status_or_fail(address)
    if as_json:
        print_json(found)
    else:
        print_status(found)


def top(
    address: AddressArgument = DEFAULT_ADDRESS,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two frames.")] = 2.0,
) -> None:
    """Show the state of a running service live, until q or Ctrl-C."""
    from stoker.cli.status_top import run_top

    run_top(address, interval)
