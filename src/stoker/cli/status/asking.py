"""Calls of commands to a dispatcher: an answer, or one line of error."""

import typer

from stoker.cli.commands import fail
from stoker.errors import StokerError
from stoker.service import messages as m
from stoker.service.config import parse_service
from stoker.service.control import rpc
from stoker.service.status import Status

CALL_SECONDS = 10.0
"""Time in which the dispatcher must answer."""


def ask(address: str, request: m.Request) -> m.Reply:
    """Return the answer of the dispatcher at an address.

    Raises:
        StokerError: if the address is not one, or the dispatcher cannot be reached or refuses.
    """
    return rpc.call(parse_service(address)[1], request, CALL_SECONDS)


def get_status(address: str, *, job: str = "", dataset_id: str = "") -> Status:
    """Return the state of the service; the arguments as in `GetStatus`.

    Raises:
        StokerError: as `ask`.
    """
    reply = ask(address, m.GetStatus(job, dataset_id))
    assert isinstance(reply, m.StatusReply)
    return reply.status


def status_or_fail(address: str, *, job: str = "", dataset_id: str = "") -> Status:
    """Return the state of the service; if there is none, print why and exit with code 1."""
    try:
        return get_status(address, job=job, dataset_id=dataset_id)
    except StokerError as error:
        fail(str(error))


def request_or_fail(address: str, request: m.Request) -> None:
    """Let the dispatcher do something, and print what it has done or why it has not."""
    try:
        done = ask(address, request)
    except StokerError as error:
        fail(str(error))
    assert isinstance(done, m.Done)
    typer.echo(done.text)
