"""Checks of the dispatcher: its port, its protocol and its version."""

import time
from typing import cast

from stoker.cli.doctor.answers import Answer, mismatch, timed
from stoker.cli.doctor.findings import Finding, finding
from stoker.cli.doctor.machine import Machine
from stoker.cli.doctor.ports import PortError, check_port
from stoker.errors import FailedPreconditionError, StokerError, UnavailableError
from stoker.service import messages as m
from stoker.service.control import rpc
from stoker.service.control.foreign_server import WorkerPortError
from stoker.wire.addresses import ipv4_of_localhost, is_loopback, parse_address

LISTENS = (
    "; a dispatcher listens on localhost unless it is started with `--host 0.0.0.0 --insecure`"
)


def check_dispatcher(
    address: str, machine: Machine, timeout: float
) -> tuple[Finding, Answer[m.ProbeReply] | None]:
    """Return the finding about the dispatcher, and its answer if a trainer here can ask it.

    Args:
        address: "host:port".
        machine: facts about this machine.
        timeout: seconds for each step.
    """
    host, port = parse_address(address)
    try:
        # As clients do, which connect to the IPv4 address of localhost.
        check_port(ipv4_of_localhost(host), port, timeout)
    except PortError as error:
        listens = "" if is_loopback(host) else LISTENS
        return finding("dispatcher", error.trouble, error=error, listens=listens), None
    # The call fails alike after silence and after a closed connection: the time tells which.
    began = time.monotonic()
    try:
        answer = timed(
            lambda: cast(m.ProbeReply, rpc.call(address, m.Probe(), timeout, timeout)),
            machine.clock,
        )
    except StokerError as error:
        name = _name_of(error, silent=time.monotonic() - began >= timeout)
        cause = error.__cause__ if name == "not-a-dispatcher" else error
        return finding("dispatcher", name, address=address, error=cause, timeout=timeout), None
    reply = answer.reply
    if differs := mismatch(reply, "protocol versions", machine.protocol):
        return finding("dispatcher", "protocol-mismatch", stoker=machine.stoker, **differs), None
    journal = "keeps a journal" if reply.journaled else "keeps no journal: its end ends all jobs"
    milliseconds = answer.round_trip * 1e3
    found = finding(
        "dispatcher", "dispatcher", milliseconds=milliseconds, stoker=reply.stoker, journal=journal
    )
    return found, answer


def _name_of(error: StokerError, *, silent: bool) -> str:
    """Return the name of the finding about a call that failed; `silent`: by its timeout."""
    if isinstance(error, FailedPreconditionError):
        is_worker = isinstance(error.__cause__, WorkerPortError)
        return "not-a-dispatcher" if is_worker else "not-stoker"
    if isinstance(error, UnavailableError):
        return "no-answer" if silent else "port-closes"
    return "dispatcher-failed"
