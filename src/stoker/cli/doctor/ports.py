"""Reachability of a TCP port from this machine."""

import socket
import threading
import time
from concurrent.futures import Future

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
    answer = Future[list[str]]()

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            answer.set_exception(error)
        else:
            answer.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in found)))

    # `getaddrinfo` cannot be interrupted, and waits half a minute for a silent name server.
    threading.Thread(target=look_up, name="stoker-resolve", daemon=True).start()
    try:
        return answer.result(timeout)
    except TimeoutError:
        seen = f"the name server did not answer for {timeout:g} s about {host!r}"
        raise PortError("name-unresolved", seen) from None
    except (OSError, UnicodeError) as error:
        raise PortError("name-unresolved", unresolvable(host, error)) from None


def _port_error(address: str, cause: BaseException | None, waited: float) -> PortError:
    if isinstance(cause, TimeoutError):
        seen = f"{address} does not answer within {round(waited, 1):g} s"
        return PortError("port-dropped", seen)
    if cause is None or isinstance(cause, ConnectionRefusedError):
        return PortError("port-refused", f"{address} refuses connections")
    why = (cause.strerror if isinstance(cause, OSError) else None) or cause
    return PortError("host-unreachable", f"{address} cannot be reached: {why}")
