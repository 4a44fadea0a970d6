"""Addresses: "host:port" as users write it, host and port as sockets take them."""

from stoker.errors import InvalidArgumentError


def format_address(host: str, port: int) -> str:
    """The address of a host and a port.

    Example:
        >>> format_address("localhost", 5050), format_address("::1", 5050)
        ('localhost:5050', '[::1]:5050')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of an address.

    Raises:
        InvalidArgumentError: it is not one.

    Example:
        >>> parse_address("[::1]:5050")
        ('::1', 5050)
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # An IPv6 address without brackets: where it ends cannot be told.
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InvalidArgumentError(
            f'{address!r} is not an address; give "host:port", or "[host]:port" for IPv6'
        )
    return host, int(port)
