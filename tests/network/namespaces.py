"""Hosts in network namespaces of their own, joined by bridges: several machines on one.

A namespace is named after the process that made it, so that `Network` can remove those of a test
run that was killed.
"""

import contextlib
import functools
import ipaddress
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_PREFIX = "stoker-test-"
_GATEWAY = 254


class Host:
    """A host with an interface in each of some networks.

    Attributes:
        name: its name in the network.
        namespace: its network namespace.
    """

    def __init__(self, name: str, number: int, networks: Sequence[int]) -> None:
        self.name = name
        self.namespace = f"{_PREFIX}{os.getpid()}-{name}"
        self._number = number
        self._networks = networks

    def ipv4(self, network: int = 0) -> str:
        """Return its IPv4 address in a network."""
        assert network in self._networks
        return f"10.77.{network}.{self._number}"

    def ipv6(self, network: int = 0) -> str:
        """Return its IPv6 address in a network."""
        assert network in self._networks
        return str(ipaddress.ip_address(f"fd77:{network}::{self._number}"))

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on this host."""
        return ["ip", "netns", "exec", self.namespace, *words]

    def ip(self, words: str) -> None:
        """Run an `ip` command on this host, such as "route add blackhole 10.77.0.3"."""
        _ip(["-n", self.namespace, *words.split()])


class Network:
    """Hosts joined by bridges, one for each network; leaving the context removes all of them.

    Args:
        families: 4, 6 or both: the IP versions of the addresses.
        mtu: of all interfaces.

    A host gets its default route through its first network; there is no gateway behind it.
    """

    def __init__(self, *, families: Sequence[int] = (4, 6), mtu: int = 1500) -> None:
        self._families = families
        self._mtu = mtu
        self._switch = f"{_PREFIX}{os.getpid()}-switch"
        self._hosts: dict[str, Host] = {}
        self._bridges: set[int] = set()

    def __enter__(self) -> Self:
        _remove_leftovers()
        _ip(["netns", "add", self._switch])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for namespace in [*(host.namespace for host in self._hosts.values()), self._switch]:
            _remove(namespace)

    def host(self, name: str, networks: Sequence[int] = (0,)) -> Host:
        """Add a host with an interface "eth<network>" in each of `networks`."""
        host = self._hosts[name] = Host(name, len(self._hosts) + 1, networks)
        _ip(["netns", "add", host.namespace])
        lines = ["link set lo up"]
        for network in networks:
            self._add_bridge(network)
            interface, port = f"eth{network}", self._port(host, network)
            _ip(
                f"link add {interface} mtu {self._mtu} netns {host.namespace} type veth "
                f"peer name {port} mtu {self._mtu} netns {self._switch}".split()
            )
            _batch(self._switch, [f"link set {port} master bridge{network} up"])
            lines += [f"link set {interface} up", *self._addresses(host, network)]
        _batch(host.namespace, lines)
        return host

    def plug(self, host: Host, network: int = 0) -> None:
        """Connect a host to a network again."""
        _batch(self._switch, [f"link set {self._port(host, network)} up"])

    def unplug(self, host: Host, network: int = 0) -> None:
        """Disconnect a host from a network, as by pulling the cable: no packet arrives."""
        _batch(self._switch, [f"link set {self._port(host, network)} down"])

    def _add_bridge(self, network: int) -> None:
        if network in self._bridges:
            return
        self._bridges.add(network)
        bridge = f"bridge{network}"
        _batch(self._switch, [f"link add {bridge} type bridge", f"link set {bridge} up"])

    def _addresses(self, host: Host, network: int) -> list[str]:
        interface, first = f"eth{network}", network == host._networks[0]
        lines = []
        if 4 in self._families:
            lines.append(f"addr add {host.ipv4(network)}/24 dev {interface}")
            if first:
                lines.append(f"route add default via 10.77.{network}.{_GATEWAY}")
        if 6 in self._families:  # without nodad the address is not used for a second
            lines.append(f"addr add {host.ipv6(network)}/64 dev {interface} nodad")
            if first:
                lines.append(f"route add default via fd77:{network}::{_GATEWAY}")
        return lines

    def _port(self, host: Host, network: int) -> str:
        return f"{host.name}-{network}"


@functools.cache
def missing_for_namespaces() -> str:
    """Return the reason that this process can make no network namespaces; "" if it can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    probe = Network()
    try:
        with probe:
            host = probe.host("probe")
            subprocess.run(host.command(["true"]), check=True, capture_output=True)
    except FileNotFoundError:
        return "`ip` (iproute2) is not installed"
    except subprocess.CalledProcessError as error:
        why = error.stderr.decode(errors="replace").strip().splitlines()
        return f"CAP_NET_ADMIN and CAP_SYS_ADMIN are needed: {why[-1] if why else error}"
    return ""


def _remove_leftovers() -> None:
    """Remove the namespaces of processes that have died."""
    directory = Path("/run/netns")
    for path in directory.glob(f"{_PREFIX}*") if directory.is_dir() else ():
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            _remove(path.name)


def _remove(namespace: str) -> None:
    with contextlib.suppress(FileNotFoundError, subprocess.CalledProcessError):
        _ip(["netns", "del", namespace])


def _ip(words: Sequence[str]) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _batch(namespace: str, lines: Sequence[str]) -> None:
    text = "".join(line + "\n" for line in lines).encode()
    command = ["ip", "-n", namespace, "-batch", "-"]
    subprocess.run(command, input=text, check=True, capture_output=True)
