"""Addresses at which remote machines reach a server of this machine, found without sending."""

import contextlib
import fcntl
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from stoker.errors import InvalidArgumentError, UnavailableError
from stoker.wire.addresses import (
    format_address,
    ipv4_of_localhost,
    is_loopback,
    is_unspecified,
    unresolvable,
)

_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses reserved for documentation, to which only a default route leads."""

_SIOCGIFADDR = 0x8915
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")


def own_host(host: str) -> str:
    """Return the host by which remote machines reach a server that is bound to `host`.

    This is `host` itself, unless `host` means all interfaces. Then this is the address of the
    interface of the default route; without a default route, an address of this machine's name, or
    of any interface; "localhost" without any.
    """
    if not is_unspecified(host):
        return host
    families = _families(host)
    for found in (_default_routes(families), _own_name(families), _interfaces(families)):
        for address in found:
            if _is_usable_elsewhere(address):
                return address
    return "localhost"


# The kernel tells the source address of the route to the dispatcher for a connected UDP socket,
# without sending anything. (docs/decisions/003)
def host_for_peers(host: str, dispatcher: tuple[str, int]) -> str:
    """Return the host at which clients reach a worker that is bound to `host`.

    If `host` means all interfaces, this is the address of the interface that reaches the
    dispatcher, if remote machines can use this address. If `host` is loopback here, this is an
    address that every machine recognizes as loopback.

    Raises:
        UnavailableError: if `host` means all interfaces and the dispatcher's name cannot be
            resolved, or no route leads to the dispatcher.
        InvalidArgumentError: if only this machine reaches `host`, and the dispatcher is another.
    """
    if not is_unspecified(host):
        loopback = loopback_of(ipv4_of_localhost(host))
        if loopback:
            _check_not_local(host, loopback, dispatcher)
        # A name that is loopback here may be another address elsewhere.
        return "localhost" if loopback in {"127.0.0.1", "::1"} else loopback or host
    reason = ""
    for target in _resolve(dispatcher, _families(host)):
        try:
            source = _source(*target)
        except OSError as error:
            reason = error.strerror or str(error)
            continue
        # The trainers of a dispatcher on this machine may be on other machines.
        return source if _is_usable_elsewhere(source) else own_host(host)
    if reason:  # the network is not configured yet: any address found now may be wrong
        where = format_address(*dispatcher)
        raise UnavailableError(f"no route leads to the dispatcher at {where}: {reason}")
    return own_host(host)  # the dispatcher is reached by an address family that is not bound


def loopback_of(host: str) -> str:
    """Return the loopback address of `host` on this machine; "" if any address is no loopback."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return ""
    addresses = [str(address[0]) for *_, address in found]
    return addresses[0] if all(map(is_loopback, addresses)) else ""


def _check_not_local(host: str, loopback: str, dispatcher: tuple[str, int]) -> None:
    """Refuse a host that only this machine can reach, if the dispatcher is another machine."""
    try:
        local = _is_this_machine(dispatcher)
    except UnavailableError:  # not resolved: the worker waits, as its session logs
        return
    if local:
        return
    known = "" if loopback == ipv4_of_localhost(host) else f", which is {loopback} here,"
    raise InvalidArgumentError(
        f"the worker would listen on {host}{known} where only this machine reaches it, but its "
        f"dispatcher at {format_address(*dispatcher)} is another machine. On a network you trust, "
        "listen on all interfaces: host='0.0.0.0', insecure=True (--host 0.0.0.0 --insecure on the "
        "command line). If trainers reach it otherwise, on this machine alone or through a tunnel, "
        "set worker_address to the host that they connect to (--worker-address localhost)"
    )


def _is_this_machine(address: tuple[str, int]) -> bool:
    """Return whether `address` is of this machine: its route begins where the route ends."""
    for target in _resolve(address, tuple(_ELSEWHERE)):
        with contextlib.suppress(OSError):
            if is_loopback(target[1][0]) or _source(*target) == target[1][0]:
                return True
    return False


def _resolve(
    address: tuple[str, int], families: tuple[socket.AddressFamily, ...]
) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    host, port = address
    try:
        found = socket.getaddrinfo(ipv4_of_localhost(host), port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise UnavailableError(unresolvable(host, error)) from error
    return [(family, target) for family, _, _, _, target in found if family in families]  # type: ignore[misc]


def _source(family: socket.AddressFamily, target: tuple[str, int]) -> str:
    """Return the local address of the route to `target`; raises OSError without a route."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def _families(host: str) -> tuple[socket.AddressFamily, ...]:
    """Return the address families that a server bound to `host` accepts, the first preferred."""
    if host == "0.0.0.0":
        return (socket.AF_INET,)
    if ":" in host:
        return (socket.AF_INET6, socket.AF_INET)
    return (socket.AF_INET, socket.AF_INET6)


def _default_routes(families: tuple[socket.AddressFamily, ...]) -> Iterator[str]:
    for family in families:
        with contextlib.suppress(OSError):
            yield _source(family, (_ELSEWHERE[family], 9))


def _own_name(families: tuple[socket.AddressFamily, ...]) -> Iterator[str]:
    """Yield the addresses of this machine's name that are its own."""
    with contextlib.suppress(UnavailableError):
        for family, target in _resolve((socket.gethostname(), 9), families):
            with contextlib.suppress(OSError):
                if _source(family, target) == target[0]:
                    yield target[0]


def _interfaces(families: tuple[socket.AddressFamily, ...]) -> Iterator[str]:
    """Yield the addresses of the interfaces, in the order of their numbers; Linux only."""
    if sys.platform == "linux":
        for family in families:
            yield from _ipv4_interfaces() if family == socket.AF_INET else _ipv6_interfaces()


def _ipv4_interfaces() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            with contextlib.suppress(OSError):  # the interface has no address
                yield socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])


def _ipv6_interfaces() -> Iterator[str]:
    if not _IPV6_ADDRESSES.exists():
        return
    lines = [line.split() for line in _IPV6_ADDRESSES.read_text().splitlines()]
    for address, _ in sorted(((line[0], line[1]) for line in lines), key=lambda line: line[1]):
        yield str(ipaddress.IPv6Address(bytes.fromhex(address)))


def _is_usable_elsewhere(address: str) -> bool:
    """Return whether an address is neither loopback nor of a single IPv6 link."""
    parsed = ipaddress.ip_address(address)
    return not (parsed.is_loopback or (parsed.version == 6 and parsed.is_link_local))
