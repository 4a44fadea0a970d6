"""Addresses: conversion between "host:port" strings and the (host, port) pairs of sockets."""

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
        raise InvalidArgumentError(
            f'{address!r} is not an address; give "host:port", or "[host]:port" for IPv6'
        )
    return host, int(port)
