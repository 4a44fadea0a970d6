"""Ports of hosts with several addresses."""

import socket

import pytest

from stoker.cli.doctor import ports
from stoker.cli.doctor.ports import PortError, check_port
from stoker.errors import UnavailableError


@pytest.mark.parametrize(
    ("causes", "trouble"),
    [
        ((ConnectionRefusedError(), OSError("no route")), "port-refused"),
        ((TimeoutError(), ConnectionRefusedError()), "port-refused"),
        ((TimeoutError(), OSError("no route")), "port-dropped"),
        ((OSError("no route"), OSError("no route")), "host-unreachable"),
    ],
)
def test_the_most_telling_address_decides(monkeypatch, causes, trouble):
    addresses = ("192.0.2.1", "2001:db8::1")
    failing = {f"{addresses[0]}:1": causes[0], f"[{addresses[1]}]:1": causes[1]}
    found = [(socket.AF_UNSPEC, socket.SOCK_STREAM, 6, "", (each, 0)) for each in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    def dial(address: str, _seconds: float) -> socket.socket:
        raise UnavailableError(address) from failing[address]

    monkeypatch.setattr(ports, "dial", dial)
    with pytest.raises(PortError) as caught:
        check_port("dual.example", 1, 8.0)
    assert caught.value.trouble == trouble
    if trouble == "port-dropped":
        assert str(caught.value) == "192.0.2.1:1 does not answer within 4 s"
