"""Addresses of servers."""

import pytest

from stoker.errors import InvalidArgumentError
from stoker.wire.addresses import format_address, is_loopback, parse_address


@pytest.mark.parametrize(
    "address",
    ["", "host", ":1", "host:", "host:0", "host:65536", "host:-1", "host:1x", "host:\u0661"],
)
def test_an_address_that_is_none_is_refused_with_its_form(address: str):
    with pytest.raises(InvalidArgumentError, match="write it as 'host:port'"):
        parse_address(address)


@pytest.mark.parametrize("address", ["::1:5", "fe80::1:5050"])
def test_an_ipv6_address_needs_brackets(address: str):
    with pytest.raises(InvalidArgumentError, match=r"write it as '\[host\]:port'"):
        parse_address(address)


@pytest.mark.parametrize("address", [("a.b", 1), ("127.0.0.1", 80), ("::1", 65535)])
def test_addresses_are_parsed_as_they_are_formatted(address: tuple[str, int]):
    assert parse_address(format_address(*address)) == address


def test_loopback_hosts_are_recognized():
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.1.2.3", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "", "example.com", "127.evil.example"]))
