"""Calls of commands to a dispatcher."""

import typer

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


def request(address: str, operation: m.Request) -> None:
    """Let the dispatcher do something, and print what it has done.

    Raises:
        StokerError: as `ask`.
    """
    done = ask(address, operation)
    assert isinstance(done, m.Done)
    typer.echo(done.text)
