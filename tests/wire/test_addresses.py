"""Addresses of servers."""

import pytest

from stoker.errors import InvalidArgumentError
from stoker.wire.addresses import format_address, is_loopback, parse_address


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("", "has no host; write 'host:port'"),
        (":1", "has no host; write 'host:port'"),
        ("[]:1", "has no host; write 'host:port'"),
        ("host", "has no port; write 'host:port'"),
        ("host:", "has no port; write 'host:port'"),
        ("[::1]", "has no port; write '[::1]:port'"),
        ("host:0", "has the port 0, which is not in [1, 65535]"),
        ("host:65536", "has the port 65536, which is not in [1, 65535]"),
        (f"host:{'9' * 5000}", f"has the port {'9' * 5000}, which is not in [1, 65535]"),
        ("host:-1", "has the port '-1', which is not a number"),
        ("host:1x", "has the port '1x', which is not a number"),
        ("host:5050/", "has the port '5050/', which is not a number"),
        ("host:\u0661", "has the port '\u0661', which is not a number"),
        ("host:1\n", "contains white space; remove it"),
        ("my host:1", "contains white space; remove it"),
        ("host:1:2", "has more than one ':'; write 'host:port', and an IPv6 address as '[::1]:por"),
        ("::1:5", "is an IPv6 address without brackets; write '[::1]:5'"),
        ("fe80::1:5050", "is an IPv6 address without brackets; write '[fe80::1]:5050'"),
        ("::1", "is an IPv6 address without brackets; write '[::1]:port'"),
    ],
)
def test_an_address_that_is_none_is_refused_with_its_fault(address: str, fault: str):
    with pytest.raises(InvalidArgumentError) as raised:
        parse_address(address)
    assert str(raised.value).startswith(f"the address {address!r} {fault}")
    with pytest.raises(InvalidArgumentError) as raised:
        parse_address(address, name="service")
    assert str(raised.value).startswith(f"`service` {address!r} {fault}")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("host", ("host", 5050)),
        ("10.0.0.5", ("10.0.0.5", 5050)),
        ("[::1]", ("::1", 5050)),
        ("host:1", ("host", 1)),
    ],
)
def test_a_missing_port_is_the_default_where_there_is_one(address, expected):
    assert parse_address(address, default_port=5050) == expected


@pytest.mark.parametrize("address", ["", ":", "host:", "::1", "[]", "host:x"])
def test_a_default_port_mends_no_other_fault(address):
    with pytest.raises(InvalidArgumentError):
        parse_address(address, default_port=5050)


@pytest.mark.parametrize("address", [("a.b", 1), ("127.0.0.1", 80), ("::1", 65535)])
def test_addresses_are_parsed_as_they_are_formatted(address: tuple[str, int]):
    assert parse_address(format_address(*address)) == address


def test_loopback_hosts_are_recognized():
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.1.2.3", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "", "example.com", "127.evil.example"]))
