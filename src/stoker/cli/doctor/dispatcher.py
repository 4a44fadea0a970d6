"""Checks of the dispatcher: its port, its protocol and its version."""

import time
from dataclasses import dataclass
from typing import Any

from stoker.cli.doctor import findings
from stoker.cli.doctor.findings import Finding
from stoker.cli.doctor.machine import Machine
from stoker.cli.doctor.ports import PortError, check_port
from stoker.errors import FailedPreconditionError, StokerError, UnavailableError
from stoker.service import messages as m
from stoker.service.control import rpc
from stoker.service.control.foreign_server import WorkerPortError
from stoker.wire import frames as f
from stoker.wire.addresses import ipv4_of_localhost, is_loopback, parse_address

LISTENS = (
    "; a dispatcher listens on localhost unless it is started with `--host 0.0.0.0 --insecure`"
)


@dataclass(frozen=True)
class DispatcherReport:
    """The dispatcher's answer.

    Attributes:
        reply: as received.
        round_trip: seconds.
        clock_offset: seconds by which its clock is ahead of this machine's.
    """

    reply: m.ProbeReply
    round_trip: float
    clock_offset: float


def check_dispatcher(
    address: str, machine: Machine, timeout: float
) -> tuple[list[Finding], DispatcherReport | None]:
    """Return the findings about the dispatcher, and its answer if there is one.

    Args:
        address: "host:port".
        machine: facts about this machine.
        timeout: seconds for each step.
    """
    host, port = parse_address(address)
    try:
        check_port(ipv4_of_localhost(host), port, timeout)
    except PortError as error:
        listens = "" if is_loopback(host) else LISTENS
        return [findings.dispatcher(error.trouble, error=error, listens=listens)], None
    began, asked = time.monotonic(), machine.clock()
    try:
        reply = rpc.call(address, m.Probe(), timeout, timeout)
    except FailedPreconditionError as error:
        server = error.__cause__
        if isinstance(server, WorkerPortError):
            found = findings.dispatcher("not-a-dispatcher", address=address, error=server)
            return [found], None
        return [findings.dispatcher("not-stoker", error=error)], None
    except UnavailableError as error:
        silent = time.monotonic() - began >= timeout
        name = "no-answer" if silent else "port-closes"
        return [findings.dispatcher(name, error=error, timeout=timeout)], None
    except StokerError as error:
        return [findings.dispatcher("dispatcher-failed", error=error)], None
    assert isinstance(reply, m.ProbeReply)
    round_trip, offset = time.monotonic() - began, reply.clock - (asked + machine.clock()) / 2
    report = DispatcherReport(reply, round_trip, offset)
    if differs := mismatch(reply, "protocol versions", machine.protocol):
        return [findings.dispatcher("protocol-mismatch", stoker=machine.stoker, **differs)], report
    journal = "keeps a journal" if reply.journaled else "keeps no journal: its end ends all jobs"
    milliseconds = round_trip * 1e3
    found = findings.dispatcher(
        "dispatcher", milliseconds=milliseconds, stoker=reply.stoker, journal=journal
    )
    return [found], report


def mismatch(
    reply: m.ProbeReply | f.WorkerProbeReply, protocol: str, here: tuple[int, int]
) -> dict[str, Any]:
    """Return the versions of a protocol there and here if none is common."""
    first, last = here
    if first <= reply.protocol_max and reply.protocol_min <= last:
        return {}
    return {"reply": reply, "protocol": protocol, "first": first, "last": last}
