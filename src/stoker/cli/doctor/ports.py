"""Reachability of a TCP port from this machine."""

import queue
import socket
import threading
import time

from stoker.errors import UnavailableError
from stoker.wire.addresses import format_address, unresolvable
from stoker.wire.transports.stream_socket import dial

TROUBLES = ("port-refused", "port-dropped", "host-unreachable", "name-unresolved")
"""Findings about a port that cannot be reached; first those that say more about the server."""


class PortError(Exception):
    """A port cannot be reached; the text says why, with the address. `trouble` is in `TROUBLES`."""

    def __init__(self, trouble: str, seen: str) -> None:
        super().__init__(seen)
        self.trouble = trouble


def check_port(host: str, port: int, timeout: float) -> None:
    """Connect to a port and close the connection.

    Args:
        host: name or address.
        port: its port.
        timeout: seconds for the name server, and again for the connection.

    Raises:
        PortError: if no address of the host can be connected.
    """
    addresses = _resolve(host, timeout)
    deadline = time.monotonic() + timeout
    errors = [PortError("name-unresolved", f"{host!r} has no address")]
    for tried, address in enumerate(addresses):
        # A family that is not routed must not leave the other one without time.
        left = (deadline - time.monotonic()) / (len(addresses) - tried)
        try:
            dial(format_address(address, port), left).close()
        except UnavailableError as failure:
            errors.append(_port_error(format_address(address, port), failure.__cause__, left))
        else:
            return
    # An address of a family that is not routed must not hide the reason of the other one.
    raise min(errors, key=lambda error: TROUBLES.index(error.trouble))


def _resolve(host: str, timeout: float) -> list[str]:
    """Return the addresses of a host, each once."""
    answers: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            answers.put(error)
        else:
            answers.put(list(dict.fromkeys(str(entry[4][0]) for entry in found)))

    # It cannot be interrupted, and a name server that does not answer takes half a minute.
    threading.Thread(target=look_up, name="stoker-resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=timeout)
    except queue.Empty:
        seen = f"the name server did not answer for {timeout:g} s about {host!r}"
        raise PortError("name-unresolved", seen) from None
    if isinstance(answer, OSError | UnicodeError):
        raise PortError("name-unresolved", unresolvable(host, answer))
    return answer


def _port_error(address: str, cause: BaseException | None, waited: float) -> PortError:
    if isinstance(cause, TimeoutError):
        seen = f"{address} does not answer within {round(waited, 1):g} s"
        return PortError("port-dropped", seen)
    if cause is None or isinstance(cause, ConnectionRefusedError):
        return PortError("port-refused", f"{address} refuses connections")
    why = (cause.strerror if isinstance(cause, OSError) else None) or cause
    return PortError("host-unreachable", f"{address} cannot be reached: {why}")
