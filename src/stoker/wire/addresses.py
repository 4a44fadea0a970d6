"""Addresses of servers: "host:port" and the (host, port) pairs of sockets."""

import ipaddress

from stoker.errors import InvalidArgumentError


def format_address(host: str, port: int) -> str:
    """Return the address "host:port" of a host and a port.

    Example:
        >>> format_address("localhost", 5050), format_address("::1", 5050)
        ('localhost:5050', '[::1]:5050')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of an address.

    Raises:
        InvalidArgumentError: if `address` is not "host:port" with a port of 1 to 65535.

    Example:
        >>> parse_address("[::1]:5050")
        ('::1', 5050)
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # An IPv6 address without brackets: its end is ambiguous.
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        form = "[host]:port" if is_ipv6(host) else "host:port"
        raise InvalidArgumentError(f"{address!r} is not an address; write it as {form!r}")
    return host, int(port)


def is_ipv6(host: str) -> bool:
    """Return whether `host` is an IPv6 address, without brackets."""
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def is_unspecified(host: str) -> bool:
    """Return whether a server bound to `host` listens on every interface of its machine."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name may resolve to anything
        return False


def ipv4_of_localhost(host: str) -> str:
    """Return `host`, and for "localhost" its IPv4 address.

    "localhost" has two addresses on most machines, but one port must mean one socket. And asyncio
    resolves names on a thread, which adds 0.9 ms to the first element and the end of an iterator.
    """
    return "127.0.0.1" if host == "localhost" else host


def unresolvable(host: str, error: OSError | UnicodeError) -> str:
    """Return the message of an error about the name of a host."""
    why = error.strerror if isinstance(error, OSError) else error
    return f"host {host!r} cannot be resolved: {why}"
