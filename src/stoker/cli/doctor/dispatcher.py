"""Checks of the dispatcher: its port, its protocol and its version."""

import time
from dataclasses import dataclass

from stoker.cli.doctor.findings import Finding, Level
from stoker.cli.doctor.machine import Machine
from stoker.cli.doctor.ports import PortError, PortTrouble, check_port
from stoker.errors import FailedPreconditionError, StokerError, UnavailableError
from stoker.service import messages as m
from stoker.service.control import rpc
from stoker.service.control.foreign_server import WorkerPortError
from stoker.wire.addresses import ipv4_of_localhost, is_loopback, parse_address

SUBJECT = "dispatcher"

LISTEN_FIX = (
    "a dispatcher listens on localhost unless it is started with `--host 0.0.0.0 --insecure`"
)

PORT_FIXES = {
    PortTrouble.UNRESOLVED: "correct the name in ADDRESS, or give the dispatcher's IP address",
    PortTrouble.REFUSED: "start `stoker dispatcher`, or correct the host and port of ADDRESS",
    PortTrouble.DROPPED: (
        "a firewall, security group or network policy drops the packets, or the machine is off: "
        "open this TCP port from here, and correct ADDRESS"
    ),
    PortTrouble.UNREACHABLE: (
        "correct ADDRESS, and check that this machine has a route to the dispatcher's network"
    ),
}


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
        fix = PORT_FIXES[error.trouble]
        if error.trouble is PortTrouble.REFUSED and not is_loopback(host):
            fix = f"{fix}; {LISTEN_FIX}"
        return [_fault(error.trouble.value, str(error), fix)], None
    began, asked = time.monotonic(), machine.clock()
    try:
        reply = rpc.call(address, m.Probe(), timeout, timeout)
    except FailedPreconditionError as error:
        return [_foreign(address, error)], None
    except UnavailableError as error:
        silent = time.monotonic() - began >= timeout
        return [_silent(timeout) if silent else _closing(error)], None
    except StokerError as error:
        return [_failed(error)], None
    assert isinstance(reply, m.ProbeReply)
    round_trip, offset = time.monotonic() - began, reply.clock - (asked + machine.clock()) / 2
    return _findings_of(reply, machine, round_trip), DispatcherReport(reply, round_trip, offset)


def _findings_of(reply: m.ProbeReply, machine: Machine, round_trip: float) -> list[Finding]:
    first, last = machine.protocol
    if reply.protocol_max < first or reply.protocol_min > last:
        seen = (
            f"it runs stoker {reply.stoker} with protocol versions {reply.protocol_min} to "
            f"{reply.protocol_max}; here is stoker {machine.stoker} with {first} to {last}"
        )
        return [_fault("protocol-mismatch", seen, "install the same stoker version on both")]
    seen = f"answers in {round_trip * 1e3:.1f} ms; stoker {reply.stoker}"
    seen += "; keeps a journal" if reply.journaled else "; keeps no journal: its end ends all jobs"
    return [Finding(Level.OK, "dispatcher", SUBJECT, seen)]


def _foreign(address: str, error: FailedPreconditionError) -> Finding:
    """Return the finding about a server that is no dispatcher."""
    server = error.__cause__
    if isinstance(server, WorkerPortError):
        return _fault("not-a-dispatcher", f"{address}: {server}", server.remedy)
    fix = "another program has this port: correct the port of ADDRESS (5050 by default)"
    return _fault("not-stoker", str(error), fix)


def _silent(timeout: float) -> Finding:
    fix = (
        "its process is frozen or its machine overloaded, or another program has this port: look "
        "at the dispatcher's log, and correct ADDRESS"
    )
    seen = f"accepts connections and sent nothing for {timeout:g} s"
    return _fault("no-answer", seen, fix)


def _closing(error: UnavailableError) -> Finding:
    fix = (
        "a proxy or port forwarder whose target is away, or a server of another protocol: check "
        "that `stoker dispatcher` runs behind it, and correct ADDRESS"
    )
    return _fault("port-closes", str(error), fix)


def _failed(error: StokerError) -> Finding:
    fix = "look at the dispatcher's log"
    return _fault("dispatcher-failed", f"it answered with an error: {error}", fix)


def _fault(name: str, seen: str, fix: str) -> Finding:
    return Finding(Level.FAULT, name, SUBJECT, seen, fix)
