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


def parse_address(
    address: str, *, name: str = "", default_port: int | None = None
) -> tuple[str, int]:
    """Return host and port of an address.

    Args:
        address: "host:port", with an IPv6 address in brackets.
        name: the argument's name, for errors.
        default_port: the port of an address without a port; ``None`` refuses such an address.

    Raises:
        InvalidArgumentError: if `address` is not a host with a port of 1 to 65535.

    Example:
        >>> parse_address("[::1]:5050"), parse_address("head", default_port=5050)
        (('::1', 5050), ('head', 5050))
    """
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, "" if default_port is None else str(default_port)
    if fault := _fault(address, host, port):
        what = f"`{name}` {address!r}" if name else f"the address {address!r}"
        raise InvalidArgumentError(f"{what} {fault}")
    return _without_brackets(host), int(port)


def _fault(address: str, host: str, port: str) -> str:
    """Return why an address with this host and port is refused and what to write, or ""."""
    if any(map(str.isspace, address)):
        return "contains white space; remove it"
    if is_ipv6(host) or is_ipv6(address):
        written = f"[{host}]:{port}" if is_ipv6(host) else f"[{address}]:port"
        return f"is an IPv6 address without brackets; write {written!r}"
    if ":" in host and _without_brackets(host) == host:
        return "has more than one ':'; write 'host:port', and an IPv6 address as '[::1]:port'"
    if not _without_brackets(host):
        return "has no host; write 'host:port'"
    if not port:
        return f"has no port; write '{host}:port'"
    if not (port.isascii() and port.isdigit()):
        return f"has the port {port!r}, which is not a number"
    if len(port) > 5 or not 0 < int(port) < 65536:
        return f"has the port {port}, which is not in [1, 65535]"
    return ""


def _without_brackets(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_ipv6(host: str) -> bool:
    """Return whether `host` is an IPv6 address, without brackets."""
    ip = _ip_of(host)
    return ip is not None and ip.version == 6


def is_unspecified(host: str) -> bool:
    """Return whether a server bound to `host` listens on every interface of its machine."""
    ip = _ip_of(host)
    return not host or (ip is not None and ip.is_unspecified)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server bound to `host`."""
    ip = _ip_of(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def _ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:  # a name, which may resolve to any address
        return None


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
