import socket

import pytest

from stoker.errors import InvalidArgumentError, UnavailableError
from stoker.service import DispatchServer
from stoker.service.process.host_addresses import host_for_peers, loopback_of, own_host
from stoker.wire.addresses import is_loopback, parse_address

MODULE = "stoker.service.process.host_addresses"
DISPATCHER = ("head.example", 5050)


class _Machine:
    """A machine with given routes, whose names have given addresses."""

    def __init__(self, names: dict[str, list[str]], routes: dict[str, str]) -> None:
        self._names = names
        self._routes = routes

    def getaddrinfo(self, host: str, port: object, **_: object) -> list[tuple[object, ...]]:
        addresses = self._names.get(host, [host])
        families = [socket.AF_INET6 if ":" in x else socket.AF_INET for x in addresses]
        return [(f, 0, 0, "", (x, port)) for f, x in zip(families, addresses, strict=True)]

    def source(self, family: int, target: tuple[str, int]) -> str:
        if target[0] not in self._routes:
            raise OSError(101, "Network is unreachable")
        return self._routes[target[0]]


@pytest.fixture
def machine(monkeypatch):
    def make(names: dict[str, list[str]], routes: dict[str, str]) -> None:
        made = _Machine(names, routes)
        monkeypatch.setattr(f"{MODULE}.socket.getaddrinfo", made.getaddrinfo)
        monkeypatch.setattr(f"{MODULE}._source", made.source)
        monkeypatch.setattr(f"{MODULE}.socket.gethostname", lambda: "here")
        monkeypatch.setattr(f"{MODULE}._interfaces", lambda _: [])

    return make


def test_bound_host_is_its_own_address():
    assert [own_host(x) for x in ("localhost", "10.1.2.3", "head")] == [
        "localhost",
        "10.1.2.3",
        "head",
    ]


@pytest.mark.parametrize(("host", "expected"), [("0.0.0.0", "10.0.0.5"), ("::", "fd00::5")])
def test_all_interfaces_are_reached_by_that_of_the_default_route(machine, host, expected):
    machine({}, {"192.0.2.1": "10.0.0.5", "2001:db8::1": "fd00::5"})
    assert own_host(host) == expected


def test_own_name_serves_without_a_default_route(machine):
    routes = {"127.0.1.1": "127.0.0.1", "10.0.0.5": "10.0.0.5", "10.9.9.9": "10.0.0.5"}
    machine({"here": ["127.0.1.1", "10.9.9.9", "10.0.0.5"]}, routes)
    assert own_host("0.0.0.0") == "10.0.0.5"


def test_machine_without_a_network_is_localhost(machine):
    machine({"here": ["127.0.1.1"]}, {"127.0.1.1": "127.0.0.1"})
    assert own_host("0.0.0.0") == "localhost"


def test_worker_advertises_the_source_of_the_route_to_the_dispatcher(machine):
    machine({"head.example": ["10.0.1.5"]}, {"10.0.1.5": "10.0.1.7", "192.0.2.1": "10.0.0.7"})
    assert host_for_peers("0.0.0.0", DISPATCHER) == "10.0.1.7"


def test_address_of_a_family_that_is_not_bound_is_not_advertised(machine):
    machine(
        {"head.example": ["fd00::5", "10.0.1.5"]}, {"fd00::5": "fd00::7", "10.0.1.5": "10.0.1.7"}
    )
    assert host_for_peers("0.0.0.0", DISPATCHER) == "10.0.1.7"
    assert host_for_peers("::", DISPATCHER) == "fd00::7"


@pytest.mark.parametrize("source", ["127.0.0.1", "fe80::7"])
def test_source_that_others_cannot_use_is_replaced(machine, source):
    machine({"head.example": ["10.0.1.5"]}, {"10.0.1.5": source, "192.0.2.1": "10.0.0.7"})
    assert host_for_peers("", DISPATCHER) == "10.0.0.7"


def test_missing_route_to_the_dispatcher_is_an_error(machine):
    machine({"head.example": ["10.0.1.5"]}, {"192.0.2.1": "10.0.0.7"})
    with pytest.raises(UnavailableError, match=r"dispatcher at head\.example:5050: Network"):
        host_for_peers("0.0.0.0", DISPATCHER)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_loopback_worker_refuses_a_dispatcher_elsewhere(machine, host):
    machine({"head.example": ["10.0.1.5"]}, {"10.0.1.5": "10.0.1.7"})
    with pytest.raises(InvalidArgumentError, match=r"--host 0\.0\.0\.0 --insecure") as caught:
        host_for_peers(host, DISPATCHER)
    assert "through a tunnel, set worker_address to the host" in str(caught.value)


def test_name_that_is_loopback_here_is_refused_too(machine):
    machine({"head.example": ["10.0.1.5"], "here": ["127.0.1.1"]}, {"10.0.1.5": "10.0.1.7"})
    with pytest.raises(InvalidArgumentError, match=r"on here, which is 127\.0\.1\.1 here, where"):
        host_for_peers("here", DISPATCHER)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7"])
def test_loopback_worker_serves_a_dispatcher_of_its_machine(machine, address):
    machine({"head.example": [address]}, {"127.0.0.1": "127.0.0.1", "10.0.0.7": "10.0.0.7"})
    assert host_for_peers("127.0.0.1", DISPATCHER) == "localhost"


@pytest.mark.parametrize(
    ("host", "address", "expected"),
    [
        ("here", "127.0.0.1", "localhost"),
        ("here", "127.0.1.1", "127.0.1.1"),
        ("127.0.0.2", "127.0.0.2", "127.0.0.2"),
    ],
)
def test_loopback_is_advertised_as_what_it_is(machine, host, address, expected):
    machine({"head.example": ["127.0.0.1"], host: [address]}, {"127.0.0.1": "127.0.0.1"})
    assert host_for_peers(host, DISPATCHER) == expected


def test_loopback_worker_waits_for_a_name_that_is_not_resolved():
    assert host_for_peers("localhost", ("no-such-host.invalid", 5050)) == "localhost"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this system has no IPv6")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_target_on_all_interfaces_can_be_connected_to(host):
    with DispatchServer(host=host, insecure=True) as server:
        address = server.target.removeprefix("grpc://")
        socket.create_connection(parse_address(address), 10).close()
        assert parse_address(address)[0] == own_host(host)
        socket.create_connection(("127.0.0.1", parse_address(address)[1]), 10).close()


def test_target_remains_when_the_network_changes(monkeypatch):
    found = iter(["10.0.0.5", "10.0.0.6"])
    monkeypatch.setattr("stoker.service.dispatcher.server.own_host", lambda _: next(found))
    server = DispatchServer(host="0.0.0.0", port=5050, insecure=True, start=False)
    assert [server.target, server.target] == ["grpc://10.0.0.5:5050"] * 2


def test_dispatcher_on_a_name_that_is_loopback_here_warns(monkeypatch, caplog):
    monkeypatch.setattr("stoker.service.dispatcher.server.loopback_of", lambda host: "127.0.1.1")
    with DispatchServer(host="127.0.0.1"):
        assert caplog.text == ""
    with pytest.raises(UnavailableError):
        DispatchServer(host="no-such-host.invalid", insecure=True)
    assert "'no-such-host.invalid' is 127.0.1.1 on this machine, which others" in caplog.text


def test_loopback_of_a_name_needs_all_its_addresses(machine):
    machine({"both": ["127.0.1.1", "10.0.0.5"], "only": ["127.0.1.1", "::1"]}, {})
    assert (loopback_of("both"), loopback_of("only")) == ("", "127.0.1.1")
    assert is_loopback(loopback_of("127.0.0.1"))
